"""Samples before and after T_γ: images as pictures, rows as the features that moved."""

from __future__ import annotations

from certus.report.features import label_words, most_moved, moved_rows, said_words
from certus.report.findings import Findings
from certus.report.inline_images import data_address
from certus.report.sections import escaped, html_table

_SHOWN = 6


def moved_images(found: Findings) -> str:
    """Pairs of pictures; nothing of what is no image."""
    worst = found.worst
    if worst is None or worst.before.dim() != 4 or worst.before.shape[1] not in (1, 3):
        return ""
    shown = []
    for place in most_moved(worst, _SHOWN):
        pair = "".join(
            f'<img alt="{when}" src="{data_address(side[place])}"> '
            for when, side in (("before", worst.before), ("after", worst.after))
        )
        words = f"target {label_words(found, worst.targets[place])}, predicted {said_words(found, place)}"
        shown.append(f"<figure>{pair}<figcaption>{escaped(words)}</figcaption></figure>")
    return f'<div class="images">{"".join(shown)}</div>'


def moved_table(found: Findings) -> str:
    """A line for each sample; nothing of what is no table."""
    rows = moved_rows(found, _SHOWN)
    return html_table(("target", "prediction", "features that moved most"), rows, words=(1, 2))
