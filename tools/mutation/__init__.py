"""Mutants: small mistakes made on purpose, one at a time, each of which a test must notice.

    python -m tools.mutation calls                  which tests call which functions, and how long they take
    python -m tools.mutation run --count 400        draw mutants by a seed and try each against its tests
    python -m tools.mutation again                  try the survivors again, after new tests
    python -m tools.mutation explain ID "…"         why a survivor may survive
    python -m tools.mutation list                   write the list of survivors

Before the command, ``--campaign bounds`` (the default) mutates the code that upper bounds rest on, and
``--campaign around`` the code around it: training, attacks, data, runs, estimators, attained sides.
``targets.py`` says what is mutated, ``operators.py`` how. Every result is one line of ``CAMPAIGN.jsonl``,
written as soon as it is known, so that a run can be stopped at any time and goes on where it was.
"""
