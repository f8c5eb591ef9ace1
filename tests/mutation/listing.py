"""The list of survivors, for people."""

from __future__ import annotations

from collections import Counter

from tests.mutation.results import LIST, Result

_HEAD = """# Mutants that no test notices

Small mistakes were put into the code that proofs rest on, one at a time; `tests/mutation` says how, and
CONTRIBUTING.md how to repeat it. {total} mutants were tried, {killed} were killed by a test, and {survived}
survived: each is below, with the reason why it may.

Line numbers are those of the commit that each was tried at:

- f3d032d (16 November 2026), `python -m tests.mutation run --count 420 --seed 14 --seconds 30`: at least 420
  places, and six of each file that has as many. Some tests were written for survivors of that run; those were
  tried again, by hand, on the code of the day.
- af9f8a5 (17 November 2026), radii by touching, accuracy and smoothing, by
  `run --count 100 --seed 14 --seconds 20 --files …` against the tests of the same names and of centred forms;
  ended after 86 of 118, in the midst of
  `smoothing/envelope.py`: the files behind it in the list of targets are untried.
- 1570478 (17 November 2026), the graph reader, by `run --count 90 --seed 14 --seconds 20 --files …` against
  seven files of tests in `tests/smoothness`; ended after 99 of 116, in `smoothness/agreement.py`.
- 5395afd (17 November 2026), linear scores and the rest of smoothing, by
  `run --count N --seed 14 --seconds 8 to 15 --files …`, file by file with N from 10 to 24, against the tests
  of smoothing and of linear scores and thirteen files beside them. Whole: `proven/straight.py`,
  `deployment.py`, `noise.py`, `noisy_certificate.py`; ended after 22 of 24 in `exact.py`, 10 of 18 in
  `any_model.py` and 2 of 10 in `agreement.py`.
- 25e51ef (17 November 2026), what had been left out, by
  `run --count N --seed 14 --seconds 2 to 15 --files …`, file by file (`any_model.py` by seed 16). `chain.py`
  whole: every site, and with seed 15 once more where it can be changed in another way. The first run had met
  part of it, which was in `operators.py` then; those mutants gave way to these.

Tests were written for survivors of the last four, and those were tried again: against the new tests and,
but for the last run, the 12 random webs of `tests/smoothness/test_webs.py`. One that is called a gap should
be noticed, and is not. Targets that are not in the table are untried.

| file | mutants | killed | survived |
|---|---|---|---|
"""


def write_list(results: dict[str, Result]) -> None:
    """Write ``survivors.md``."""
    files = [result.id.split(":")[0] for result in results.values()]
    totals = Counter(files)
    survivors = [result for result in results.values() if result.outcome == "survived"]
    left = Counter(result.id.split(":")[0] for result in survivors)
    text = _HEAD.format(total=len(files), killed=len(files) - len(survivors), survived=len(survivors))
    text += "".join(
        f"| {path} | {count} | {count - left[path]} | {left[path]} |\n" for path, count in totals.items()
    )
    for path in totals:
        own = sorted(
            (result for result in survivors if result.id.split(":")[0] == path),
            key=lambda result: int(result.id.split(":")[1]),
        )
        if own:
            text += f"\n## {path}\n"
        for result in own:
            text += (
                f"\n**{result.id}**\n\n```text\n{result.before}\n{result.after}\n```\n\n"
                f"{result.why or 'Not yet explained.'}\n"
            )
    LIST.write_text(text)
