"""``certus verify``: check or recompute a certificate and compare it with its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certus.cli import options as cli
from certus.cli.output import console, messages, print_json
from certus.errors import ArgumentError, ContradictionError, VerificationError, require
from certus.storage.files import CorruptFileError
from certus.storage.write import finish_transaction, pending_transaction

if TYPE_CHECKING:
    from certus.runs.verification import Statement
    from certus.smoothing.certificate import SmoothedCertificate


@cli.command("verify")
@cli.argument("file", type=cli.PATH)
@cli.option("--run", type=cli.PATH, help="Run directory, if it is neither beside FILE nor at its old place.")
@cli.model_option
@cli.run_data_option
@cli.option(
    "--redraw", is_flag=True, help="Draw the noise of a smoothing.json again, and ask the model again."
)
@cli.json_option
def verify(
    file: Path, run: Path | None, model: str | None, run_data: str | None, redraw: bool, as_json: bool
) -> None:
    """Recompute a certificate, and fail if a number differs.

    \b
    certus verify runs/digits/certificate/certificate.json
    certus verify runs/noisy/certificate/smoothing.json

    FILE is a certificate.json or a smoothing.json. Of the latter the kernel proves the upper sides from the
    table beside it, smoothing.safetensors; --redraw recomputes everything with the model. Numbers may differ
    by 1e-9 of their size. Exit code 0: verified. 1: a number differs, or an entry was changed. 2: nothing
    could be compared, because FILE is not a certificate, or because it, its table or its run is missing. 3:
    certus itself failed.
    """
    rule = f"be a file, such as {file / 'certificate.json'}"
    require(not file.is_dir(), "FILE", rule, f"the folder {file}")
    differences: list[str]
    remarks: list[str] = []
    smoothed = None
    try:
        stated = _read(file)
    except (CorruptFileError, ContradictionError) as reason:
        differences = [str(reason)]
    else:
        smoothed = None if redraw else stated.smoothed
        if stated.smoothed is None:
            cli.refuse_unused({"redraw": "for a certificate without noise, which nothing draws"})
        if smoothed is None:
            differences, remarks = _compare(stated, file, run, model, run_data)
        else:
            words = "without --redraw: a smoothing.json is checked from the table beside it"
            cli.refuse_unused(dict.fromkeys(("run", "model", "run_data"), words))
            differences, remarks = _check_table(smoothed)
    for line in remarks:
        messages.print(f"{line}.")
    if as_json:
        print_json({"verified": not differences, "differences": differences, "remarks": remarks})
    if differences:
        for line in differences[1:10]:
            messages.print(line)
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        raise VerificationError(f"{file} is not verified: {differences[0]}{more}")
    if not as_json and smoothed is not None:
        console.print(f"Verified: the kernel proves every upper side of {file} from the table beside it.")
    elif not as_json:
        console.print(f"Verified: every number of {file} was computed again and agrees to 1e-9 of its size.")


def _read(file: Path) -> Statement:
    """Read a certificate, once a certification that was interrupted while it wrote is complete."""
    from certus.runs.verification import Statement

    if pending_transaction(file.parent).is_dir():
        finish_transaction(file.parent, file.name)
    return Statement.read(file)


def _check_table(certificate: SmoothedCertificate) -> tuple[list[str], list[str]]:
    """Let the kernel check a certificate by smoothing; return the difference and remarks."""
    from certus.kernel.smoothing import PREMISES

    try:
        certificate.verify()
    except (CorruptFileError, ContradictionError, VerificationError) as reason:
        return [str(reason)], []
    remarks = [f"Premise, not checked without --redraw: {premise}" for premise in PREMISES]
    return [], [*remarks, "Lower sides were not measured again"]


def _compare(
    stated: Statement, file: Path, run: Path | None, model: str | None, run_data: str | None
) -> tuple[list[str], list[str]]:
    """Return the differences between the file and the recomputed certificate, and remarks."""
    from certus.cli.certify import compute, compute_smoothed
    from certus.runs.verification import certified_folder

    if run is None:
        run = certified_folder(file, stated.run, stated.content["about"]["digests"]["weights"])
    trained = cli.TypedRun(run, model, run_data).load()
    if other := stated.other_problem(trained):
        return other, []
    try:
        certificate = (
            compute(trained, stated.settings, None)
            if stated.noise is None
            else compute_smoothed(trained, stated.settings, stated.noise, None)
        )
    except (ArgumentError, ContradictionError) as reason:
        return [f"it cannot be computed again: {reason}"], []
    return stated.differences(certificate), stated.remarks(certificate)
