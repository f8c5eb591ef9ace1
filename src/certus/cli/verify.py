"""``certus verify``: a certificate computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.attack_trials import ModelFile
from certus.cli.certify import compute
from certus.cli.idle import of_network, refuse_idle
from certus.cli.output import Json, console, messages, print_json
from certus.errors import ArgumentError, ContradictionError
from certus.runs.directory import RunDirectory
from certus.runs.trained import open_trained
from certus.runs.verification import Statement, VerificationError
from certus.storage.files import DamageError
from certus.storage.together import complete, pending


def verify(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A certificate.json.")],
    run: Annotated[Path | None, typer.Option(help="The run, if it is no longer where it was.")] = None,
    model: ModelFile = None,
    as_json: Json = False,
) -> None:
    """Compute a certificate again, and fail if a number differs by more than 1e-9 of its size.

    \b
    certus verify runs/digits/certificate/certificate.json

    Exit code 0: verified. 1: it is not, or the file is damaged. 2: nothing could be compared, for want of a
    certificate or of its run.
    """
    found, remarks = _compare(context, file, run, model)
    for line in remarks:
        messages.print(f"{line}.")
    if as_json:
        print_json({"verified": not found, "differences": found, "remarks": remarks})
    if found:
        for line in found[1:10]:
            messages.print(line)
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise VerificationError(f"{file} is not verified: {found[0]}{more}")
    if not as_json:
        console.print(f"Verified: every number of {file} was computed again and agrees to 1e-9 of its size.")


def _compare(
    context: typer.Context, file: Path, run: Path | None, model: str | None
) -> tuple[list[str], list[str]]:
    """What differs, and what else should be known."""
    if pending(file.parent).is_dir():
        complete(file.parent, file.name)
    try:
        stated = Statement.read(file)
    except (DamageError, ContradictionError) as reason:
        return [str(reason)], []
    opened = RunDirectory.open(stated.run if run is None else run)
    refuse_idle(context, of_network(opened))
    trained = open_trained(opened, model=model)
    if found := stated.other_problem(trained):
        return found, []
    try:
        again = compute(trained, stated.settings, None)
    except (ArgumentError, ContradictionError) as reason:
        return [f"it cannot be computed again: {reason}"], []
    return stated.differences(again), stated.remarks(again)
