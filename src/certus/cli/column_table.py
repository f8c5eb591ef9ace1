"""What becomes of each column of a table, said once before training."""

from __future__ import annotations

from certus.cli.output import messages
from certus.datasets import SplitDataset
from certus.display.text import make_table


def show_columns(data: SplitDataset) -> None:
    """Column, kind, gaps, different values and what becomes of it; nothing for data without a recipe."""
    if data.recipe is None:
        return
    shown = make_table("column", "kind", "missing", "distinct", "becomes", words=("kind", "becomes"))
    for one in data.recipe.columns:
        kind = "–" if one.kind == "dropped" else one.kind
        shown.add_row(one.name, kind, str(one.missing), str(one.distinct), one.becomes)
    messages.print(shown)
    what = "a regression" if data.classes is None else f"{data.classes} classes"
    messages.print(f"Target: {data.recipe.target} ({what}).")
