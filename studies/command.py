"""What ``python -m studies`` does: the list, and one result or all of them with a bar of the work
that is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from certus.cli.interruption import if_interrupted
from certus.cli.output import console, messages, print_json, require_folder
from certus.display.text import make_table
from certus.errors import require
from certus.storage.files import DamageError
from certus.training import Observer, TrainingState
from studies.making import MEASURED, read_measured, reproduce, require_place
from studies.page import rows_of
from studies.reproduction import Extent, Reproduction
from studies.reproductions import REPRODUCTIONS, reproductions
from studies.workshop import Workshop, require_data

_SELDOM = 60  # seconds between lines about epochs


def list_reproductions(output: Path, work: Path, *, as_json: bool) -> None:
    """What there is, what it costs, and what has been measured already."""
    require_folder("--output", output)
    require_folder("--work", work)
    rows = [_row(of, output, Workshop(work)) for of in REPRODUCTIONS.values()]
    if as_json:
        print_json(rows)
        return
    for beyond in (False, True):
        first = "beyond the paper" if beyond else "name"
        shown = make_table(first, "quick", "paper", "measured", "shows", words=("measured", "shows"))
        for row in (each for each in rows if each["beyond"] == beyond):
            costs = [f"{row[f'minutes_{extent}']:g} min" for extent in Extent]
            shown.add_row(str(row["name"]), *costs, _state(row), str(row["title"]))
        console.print(shown)
    console.print(
        "Minutes on two cores, about; those of mnist-… once mnist is there, whose networks they share. "
        "`python -m studies NAME --scale paper` resumes an interrupted one."
    )


def _state(row: dict[str, Any]) -> str:
    """At which scale it is there; else how much of the paper's scale is."""
    kept, parts = row["parts_kept"][Extent.PAPER], row["parts"][Extent.PAPER]
    return row["measured"] or (f"{kept} of {parts} parts" if kept else "–")


def _row(of: Reproduction, output: Path, workshop: Workshop) -> dict[str, Any]:
    path = output / of.name / MEASURED
    measured = None
    if path.exists():
        try:
            measured = read_measured(path)["extent"]
        except DamageError:
            measured = "damaged"
    begun = {
        str(extent): sum(workshop.kept(of, extent, part) is not None for part in of.parts(extent))
        for extent in Extent
    }
    return {
        "name": of.name,
        "title": of.title,
        "beyond": of.beyond,
        "shows": list(of.shows),
        "needs": of.needed_data(Extent.PAPER),
        **{f"minutes_{extent}": of.minutes[extent] for extent in Extent},
        "measured": measured,
        "parts": {str(extent): len(of.parts(extent)) for extent in Extent},
        "parts_kept": begun,
    }


def carry_out_reproduction(name: str, scale: str, output: Path, work: Path, *, as_json: bool) -> None:
    """One result, or all; whatever would refuse a later one is tried before the first."""
    legal = [str(extent) for extent in Extent]
    require(scale in legal, "--scale", f"be {' or '.join(legal)}", repr(scale))
    extent = Extent(scale)
    chosen = reproductions(name)
    require_folder("--output", output)
    require_folder("--work", work)
    for of in chosen:
        require_place(of, extent, output)
        require_data(of, extent)
    kept = f"{work} keeps the parts that are finished; the same command continues."
    written = []
    with if_interrupted(lambda: kept):
        for of in chosen:
            written += _with_bar(of, extent, work, output)
    if as_json:
        print_json({of.name: read_measured(output / of.name / MEASURED) for of in chosen})
        return
    for of in chosen:
        _show(of, output)
    pages = ", ".join(str(path) for path in dict.fromkeys(written) if path.suffix == ".md")
    console.print(f"Pages: {pages}")


def _with_bar(of: Reproduction, extent: Extent, work: Path, output: Path) -> list[Path]:
    """A bar in a terminal; a line for each part elsewhere, as in the file of ``nohup``."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as bar:
        task, part, told, begun = bar.add_task(of.name, total=None), "", 0.0, time.monotonic()

        def say(words: str, *, seldom: bool = False) -> None:
            nonlocal told
            bar.update(task, description=f"{of.name}: {words}")
            if not messages.is_terminal and (not seldom or time.monotonic() - told > _SELDOM):
                told = time.monotonic()
                messages.print(f"{of.name}: {words}")

        def tell(name: str, done: float, whole: float) -> None:
            nonlocal part
            part = name
            bar.update(task, completed=done, total=whole or 1.0)
            spent = time.monotonic() - begun
            say(
                name
                if messages.is_terminal or not whole
                else f"{name} ({spoken_progress(done, whole, spent)})"
            )

        def watch() -> list[Observer]:
            return [_Epochs(lambda words: say(f"{part}, {words}", seldom=True))]

        def waiting() -> None:
            say(f"{part}, waits for another process that trains its network")

        return reproduce(of, extent, Workshop(work, watch, waiting), output, tell)


def spoken_progress(done: float, whole: float, seconds: float) -> str:
    """What is done after so many seconds; once that is a twentieth, also about how long the rest takes.

    >>> spoken_progress(0.1, 4, 60), spoken_progress(1, 4, 59), spoken_progress(3, 4, 120)
    ('2% done', '25% done, about 3 min left', '75% done, under a minute left')
    """
    told = f"{done / whole:.0%} done"
    if done < whole / 20 or done == whole:
        return told
    left = seconds * (whole - done) / done
    return f"{told}, about {left / 60:.0f} min left" if left >= 60 else f"{told}, under a minute left"


class _Epochs(Observer):
    """Says which epoch a training is in."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._epochs = say, 0

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._epochs = epochs

    def after_epoch(self, state: TrainingState) -> None:
        self._say(f"epoch {len(state.history)} of {self._epochs} done")


def _show(of: Reproduction, output: Path) -> None:
    content = read_measured(output / of.name / MEASURED)
    console.print(f"{of.title} (scale: {content['extent']})")
    heads = ("answer", "question", "ours") if of.beyond else ("verdict", "claim", "ours")
    shown = make_table(*heads, words=heads)
    for claim, ours, outcome in rows_of(content):
        shown.add_row(outcome, claim, ours)
    console.print(shown)
