"""``certus verify``: recompute a certificate and compare it with its file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.options import Json, ModelFile, RunData, of_network, refuse_idle
from certus.cli.output import console, messages, print_json
from certus.errors import ArgumentError, ContradictionError, VerificationError, require
from certus.storage.files import CorruptFileError
from certus.storage.write import finish_transaction, pending_transaction


def verify(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A certificate.json, or a smoothing.json.")],
    run: Annotated[
        Path | None, typer.Option(help="The run, if it is neither beside FILE nor where it was.")
    ] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Compute a certificate again, and fail if a number differs.

    \b
    certus verify runs/digits/certificate/certificate.json
    certus verify runs/noisy/certificate/smoothing.json

    Numbers may differ by 1e-9 of their size. Exit code 0: verified. 1: not verified, or the file is
    damaged. 2: nothing could be compared, because the certificate or its run is missing. 3: certus
    itself failed.
    """

    verify_file(context, file, run, model, run_data, as_json=as_json)


def verify_file(
    context: typer.Context,
    file: Path,
    run: Path | None,
    model: str | None,
    run_data: str | None,
    *,
    as_json: bool,
) -> None:
    """Say what differs; raise ``VerificationError`` if anything does."""
    require(
        not file.is_dir(), "FILE", f"be a file, such as {file / 'certificate.json'}", f"the folder {file}"
    )
    found, remarks = _compare(context, file, run, model, run_data)
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
    context: typer.Context, file: Path, run: Path | None, model: str | None, run_data: str | None
) -> tuple[list[str], list[str]]:
    """What differs, and what else should be known."""
    from certus.cli.certify import compute, compute_in_noise
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run
    from certus.runs.verification import SmoothedStatement, Statement, certified_folder, is_smoothed

    if pending_transaction(file.parent).is_dir():
        finish_transaction(file.parent, file.name)
    try:
        stated = SmoothedStatement.read(file) if is_smoothed(file) else Statement.read(file)
    except (CorruptFileError, ContradictionError) as reason:
        return [str(reason)], []
    if run is None:
        run = certified_folder(file, stated.run, stated.content["about"]["digests"]["weights"])
    opened = RunDirectory.open(run, data=run_data)
    refuse_idle(context, of_network(opened))
    trained = open_run(opened, model=model)
    if found := stated.other_problem(trained):
        return found, []
    try:
        if isinstance(stated, SmoothedStatement):
            heard = compute_in_noise(trained, stated.settings, stated.noisy, None)
            return stated.differences(heard), stated.remarks(heard)
        again = compute(trained, stated.settings, None)
    except (ArgumentError, ContradictionError) as reason:
        return [f"it cannot be computed again: {reason}"], []
    return stated.differences(again), stated.remarks(again)
