"""The list of survivors, for people."""

from __future__ import annotations

from collections import Counter

from tests.mutation.results import LIST, Result

_HEAD = """# Mutants that no test notices

Small mistakes were put into the code that proofs rest on, one at a time; `tests/mutation` says how, and
CONTRIBUTING.md how to repeat it. {total} mutants were tried, {killed} were killed by a test, and {survived}
survived: each is below, with the reason why it may.

Drawn and tried on 16 November 2026 at commit f3d032d by
`python -m tests.mutation run --count 420 --seed 14 --seconds 30`: at least 420 places, and six of each file
that has as many. Some tests were written for survivors of that run; those were tried again, by hand, on the
code of the day. Line numbers are those of the commit.

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
