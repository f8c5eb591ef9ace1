"""Run a study: measure what is missing, draw, and write its folder.

results/NAME/measured.json     scale, settings, environment, measurements, verdicts; with a checksum
results/NAME/PICTURE.png, .svg, or .gif
results/NAME/README.md         the page
results/README.md              one row for each figure and table of the paper
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certus.display.canvas import save_figure
from certus.errors import ArgumentError
from certus.storage.files import CorruptFileError, RunError, open_regular, read_json
from certus.storage.write import add_checksum, verify_checksum, write_atomically, write_json
from studies.page import WRITTEN_BY, page
from studies.paper_rows import PAPER_ROWS
from studies.paper_table import paper_table
from studies.study import Scale, Study
from studies.workspace import Workspace, merge_environments, require_inputs

MEASURED, PAGE = "measured.json", "README.md"
Report = Callable[[str, float, float], None]
"""Called before each part with its name, the effort that is done, and the whole effort."""


def run_study(study: Study, scale: Scale, workspace: Workspace, results: Path, report: Report) -> list[Path]:
    """Measure missing parts, draw, and write the folder of a study.

    Returns: the files that were written.
    """
    require_output(study, scale, results)
    require_inputs(study, scale)
    parts = study.parts(scale)
    measured = {part.name: workspace.load(study, scale, part) for part in parts}
    missing = [part for part in parts if measured[part.name] is None]
    whole, done = sum(part.effort for part in missing), 0.0
    for part in missing:
        report(part.name, done, whole)
        measured[part.name] = part.measure(workspace, part.settings)
        workspace.store(study, scale, part, measured[part.name])
        done += part.effort
    report("drawing", whole, whole)
    when = merge_environments(workspace.environments_of(study, scale))
    return write_folder(study, _content(study, scale, measured, when), results)


def _content(study: Study, scale: Scale, measured: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    """Return the content of ``measured.json``, without its checksum."""
    return {
        "name": study.name,
        "title": study.title,
        "beyond": study.beyond,
        "scale": scale,
        "revision": study.revision,
        "environment": when,
        "training": study.training_at(scale),
        "settings": {part.name: dict(part.settings) for part in study.parts(scale)},
        "verdicts": verdicts_of(study, measured),
        "measured": measured,
    }


def verdicts_of(study: Study, measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts in JSON types."""
    return [asdict(verdict) for verdict in study.verdicts(measured)]


def write_folder(study: Study, content: dict[str, Any], results: Path) -> list[Path]:
    """Write pictures, page and measurements of a study; then the table of all."""
    folder, measured = results / study.name, content["measured"]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in study.pictures:
        figure = picture.draw(measured)
        for suffix in (".png", ".svg"):
            written.append(folder / f"{picture.name}{suffix}")
            save_figure(figure, written[-1])
    for animation in study.animations:
        written.append(folder / f"{animation.name}.gif")
        animation.write(measured, written[-1])
    write_json(folder / MEASURED, add_checksum(content))
    write_atomically(folder / PAGE, page(study, content).encode())
    write_atomically(results / PAGE, paper_table(_everything(results), PAPER_ROWS).encode())
    return [*written, folder / MEASURED, folder / PAGE, results / PAGE]


def read_measured(path: Path) -> dict[str, Any]:
    """Read and verify ``measured.json``; ``CorruptFileError`` names the remedy."""
    try:
        content = read_json(path)
        if not isinstance(content, dict):
            raise CorruptFileError(f"{path} is corrupt: it is not a file of certus.")
        verify_checksum(content, path)
        if not {"scale", "environment", "verdicts"} <= content.keys():
            raise CorruptFileError(f"{path} was written by an older version.")
        return content
    except RunError as reason:
        again = f"remove {path.parent}, and `python -m studies {path.parent.name}` writes it again"
        raise CorruptFileError(f"{str(reason).removesuffix('.')}: {again}.") from None


def _everything(results: Path) -> list[dict[str, Any]]:
    """Read the measurements of every study in this folder; folders without a page of ours are skipped."""
    pages = sorted(path for path in results.glob(f"*/{PAGE}") if _is_ours(path))
    return [read_measured(path.parent / MEASURED) for path in pages]


def _is_ours(page_file: Path) -> bool:
    try:
        with open_regular(page_file) as stream:
            return stream.read(len(WRITTEN_BY.encode())) == WRITTEN_BY.encode()
    except OSError:
        return False


def require_output(study: Study, scale: Scale, results: Path) -> None:
    """Raise ``ArgumentError`` if a foreign page, or the full scale by a quick look, would be overwritten.

    Raises ``RunError`` for a file that the table of all could not read.
    """
    for page_file in (results / PAGE, results / study.name / PAGE):
        if os.path.lexists(page_file) and not _is_ours(page_file):
            raise ArgumentError(
                f"`--output` must be a separate folder; {page_file} is not of certus; got {results}."
            )
    _everything(results)
    path = results / study.name / MEASURED
    if scale is Scale.QUICK and path.exists() and read_measured(path)["scale"] == Scale.FULL:
        raise ArgumentError(
            f"`--output` must be another folder for a quick look: {path.parent} holds the full scale; "
            f"got {results}. Give `-o` a folder of your own, or take `--scale full`."
        )
