"""The list of studies, and runs of one or several with a progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from certus.cli.output import console, if_interrupted, messages, print_json, require_folder
from certus.display.text import make_table
from certus.errors import require
from certus.storage.files import CorruptFileError
from certus.training import Callback, TrainingState
from studies.page import rows_of
from studies.registry import STUDIES, select_studies
from studies.runner import MEASURED, read_measured, require_output, run_study
from studies.study import Scale, Study
from studies.workspace import Workspace, require_inputs

_SELDOM = 60  # seconds between lines about epochs


def list_studies(output: Path, work: Path, *, as_json: bool) -> None:
    """Print all studies, their cost, and whether they have been measured."""
    require_folder("--output", output)
    require_folder("--work", work)
    rows = [_row(study, output, Workspace(work)) for study in STUDIES.values()]
    if as_json:
        print_json(rows)
        return
    for beyond in (False, True):
        first = "beyond the paper" if beyond else "name"
        table = make_table(first, "quick", "full", "measured", "shows", words=("measured", "shows"))
        for row in (each for each in rows if each["beyond"] == beyond):
            costs = [f"{row[f'minutes_{scale}']:g} min" for scale in Scale]
            table.add_row(str(row["name"]), *costs, _state(row), str(row["title"]))
        console.print(table)
    console.print(
        "Minutes on two cores, about; those of mnist-… once mnist is there, whose networks they share. "
        "`python -m studies NAME --scale full` resumes an interrupted one."
    )


def _state(row: dict[str, Any]) -> str:
    """Return the scale that was measured, or how many parts of the full scale were."""
    done, parts = row["parts_done"][Scale.FULL], row["parts"][Scale.FULL]
    return row["measured"] or (f"{done} of {parts} parts" if done else "–")


def _row(study: Study, output: Path, workspace: Workspace) -> dict[str, Any]:
    path = output / study.name / MEASURED
    measured = None
    if path.exists():
        try:
            measured = read_measured(path)["scale"]
        except CorruptFileError:
            measured = "damaged"
    begun = {
        str(scale): sum(workspace.load(study, scale, part) is not None for part in study.parts(scale))
        for scale in Scale
    }
    return {
        "name": study.name,
        "title": study.title,
        "beyond": study.beyond,
        "labels": list(study.labels),
        "data": study.needed_data(Scale.FULL),
        **{f"minutes_{scale}": study.minutes[scale] for scale in Scale},
        "measured": measured,
        "parts": {str(scale): len(study.parts(scale)) for scale in Scale},
        "parts_done": begun,
    }


def run_studies(name: str, scale: str, output: Path, work: Path, *, as_json: bool) -> None:
    """Run one study or a group; inputs and outputs of all are checked before the first."""
    legal = [str(scale) for scale in Scale]
    require(scale in legal, "--scale", f"be {' or '.join(legal)}", repr(scale))
    scale = Scale(scale)
    chosen = select_studies(name)
    require_folder("--output", output)
    require_folder("--work", work)
    for study in chosen:
        require_output(study, scale, output)
        require_inputs(study, scale)
    message = f"{work} keeps the parts that are finished; run the same command to continue."
    written = []
    with if_interrupted(lambda: message):
        for study in chosen:
            written += _with_bar(study, scale, work, output)
    if as_json:
        print_json({study.name: read_measured(output / study.name / MEASURED) for study in chosen})
        return
    for study in chosen:
        _show(study, output)
    pages = ", ".join(str(path) for path in dict.fromkeys(written) if path.suffix == ".md")
    console.print(f"Pages: {pages}")


def _with_bar(study: Study, scale: Scale, work: Path, output: Path) -> list[Path]:
    """Run a study with a progress bar in a terminal, and a line for each part elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as bar:
        task, part, last_line, begun = bar.add_task(study.name, total=None), "", 0.0, time.monotonic()

        def say(words: str, *, seldom: bool = False) -> None:
            nonlocal last_line
            bar.update(task, description=f"{study.name}: {words}")
            if not messages.is_terminal and (not seldom or time.monotonic() - last_line > _SELDOM):
                last_line = time.monotonic()
                messages.print(f"{study.name}: {words}")

        def tell(name: str, done: float, whole: float) -> None:
            nonlocal part
            part = name
            bar.update(task, completed=done, total=whole or 1.0)
            spent = time.monotonic() - begun
            say(
                name if messages.is_terminal or not whole else f"{name} ({progress_text(done, whole, spent)})"
            )

        def watch() -> list[Callback]:
            return [_Epochs(lambda words: say(f"{part}, {words}", seldom=True))]

        def waiting() -> None:
            say(f"{part}, waits for another process that trains its network")

        return run_study(study, scale, Workspace(work, watch, waiting), output, tell)


def progress_text(done: float, whole: float, seconds: float) -> str:
    """Format the share that is done; from a twentieth on, also the time that is left.

    >>> progress_text(0.1, 4, 60), progress_text(1, 4, 59), progress_text(3, 4, 120)
    ('2% done', '25% done, about 3 min left', '75% done, under a minute left')
    """
    text = f"{done / whole:.0%} done"
    if done < whole / 20 or done == whole:
        return text
    left = seconds * (whole - done) / done
    return f"{text}, about {left / 60:.0f} min left" if left >= 60 else f"{text}, under a minute left"


class _Epochs(Callback):
    """Callback that reports the epoch of a training."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._epochs = say, 0

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._epochs = epochs

    def on_epoch_end(self, state: TrainingState) -> None:
        self._say(f"epoch {len(state.history)} of {self._epochs} done")


def _show(study: Study, output: Path) -> None:
    content = read_measured(output / study.name / MEASURED)
    console.print(f"{study.title} (scale: {content['scale']})")
    heads = ("answer", "question", "ours") if study.beyond else ("verdict", "claim", "ours")
    table = make_table(*heads, words=heads)
    for claim, ours, outcome in rows_of(content):
        table.add_row(outcome, claim, ours)
    console.print(table)
