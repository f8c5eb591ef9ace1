"""The list of survivors, for people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.mutation.results import Result

MARK = "<!-- Below: written by `python -m tools.mutation list`. -->\n"


def write_list(results: dict[str, Result], destination: Path) -> None:
    """Write the counts and the survivors below the mark; the text above it is written by hand."""
    text = destination.read_text().partition(MARK)[0] if destination.exists() else "# Survivors\n\n"
    files = [result.id.split(":")[0] for result in results.values()]
    totals = Counter(files)
    survivors = [result for result in results.values() if result.outcome == "survived"]
    left = Counter(result.id.split(":")[0] for result in survivors)
    text += MARK + (
        f"\n{len(files)} mutants tried, {len(files) - len(survivors)} killed, {len(survivors)} survived.\n\n"
        "| file | mutants | killed | survived |\n|---|---|---|---|\n"
    )
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
    destination.write_text(text)
