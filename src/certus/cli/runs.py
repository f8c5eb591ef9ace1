"""``certus runs``: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, sub-folders included.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder, with what they reached.

    \b
    certus runs
    certus runs experiments --json
    """
    from certus.cli.run_table import show_runs

    show_runs(folder, as_json=as_json)
