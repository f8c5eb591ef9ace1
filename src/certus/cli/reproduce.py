"""``certus reproduce``: the paper's figures and tables, measured again, and studies beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Which result; all: those of the paper; beyond: the others. None: the list."),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="quick: minutes, for the curious; paper: what the paper's figure is made of.")
    ] = "quick",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")] = Path("results"),
    work: Annotated[
        Path, typer.Option(help="Folder of trained networks and finished parts, which are used again.")
    ] = Path("runs/reproduce"),
    as_json: Json = False,
) -> None:
    """Measure a figure or table of the paper again, or a study beyond it.

    \b
    certus reproduce
    certus reproduce toy -o mine
    certus reproduce all --scale paper

    Each result becomes a folder with a page, its pictures and all numbers. If it is interrupted, give the
    same command again: it resumes.
    """
    from certus.cli.reproducing import carry_out_reproduction, list_reproductions

    if name is None:
        list_reproductions(output, work, as_json=as_json)
    else:
        carry_out_reproduction(name, scale, output, work, as_json=as_json)
