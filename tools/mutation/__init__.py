"""Mutants of the trusted kernel: small mistakes, one at a time, each of which a test must notice.

    python -m tools.mutation record                 record which tests reach which lines, and their times
    python -m tools.mutation run --seconds 2        try every mutant that has no result yet; resumable
    python -m tools.mutation sort                   compare the survivors with the kernel on fixed problems
    python -m tools.mutation again                  try those again that do not only loosen a bound
    python -m tools.mutation explain TEXT "…"       record why some survivors are harmless
    python -m tools.mutation list                   write survivors.md, and drop results of code that is gone

``mutants`` defines the changes, ``trials`` how a mutant meets its tests, ``oracle`` how the results of a
survivor differ on the problems of ``tests.tools.kernel_problems``. Every result is one line of
``results.jsonl``, written at once. It belongs to the source of its function: where that changes, its mutants
are tried again, and no others.
"""
