"""``certus verify``: check a certificate by the kernel, or recompute it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli.output import console, messages, print_json
from certus.errors import ArgumentError, ContradictionError, VerificationError, require
from certus.storage.files import CorruptFileError, read_json
from certus.storage.write import finish_transaction, pending_transaction

if TYPE_CHECKING:
    from certus.kernel.check import Checked
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.verification import Statement


@cli.command("verify")
@cli.argument("file", type=cli.PATH)
@cli.option("--data", type=cli.PATH, help="Safetensors file of the rows (inputs, targets, any weights).")
@cli.option("--recompute", is_flag=True, help="Certify again, and compare every number of the file.")
@cli.option("--run", type=cli.PATH, help="Run directory, if it is neither beside FILE nor at its old place.")
@cli.model_option
@cli.run_data_option
@cli.json_option
def verify(
    file: Path,
    data: Path | None,
    recompute: bool,
    run: Path | None,
    model: str | None,
    run_data: str | None,
    as_json: bool,
) -> None:
    """Check a certificate, and fail if a number does not follow.

    \b
    certus verify runs/digits/certificate/certificate.json
    certus verify certificate.json --data rows.safetensors
    certus verify runs/digits/certificate/certificate.json --recompute
    certus verify runs/noisy/certificate/smoothing.json

    FILE is a certificate.json or a smoothing.json. The upper sides of a certificate.json are proven again
    from the network and the witnesses stored beside it: nothing is searched or attacked. The rows are those
    beside it (certify --include-data), of --data, or of the run. A smoothing.json is always recomputed.
    Numbers may differ by 1e-9 of their size. Exit code 0: verified. 1: a number does not follow, or an entry
    was changed. 2: nothing was checked, because FILE is not a certificate, or because it, its run or the rows
    are missing. 3: certus itself failed.
    """
    rule = f"be a file, such as {file / 'certificate.json'}"
    require(not file.is_dir(), "FILE", rule, f"the folder {file}")
    if pending_transaction(file.parent).is_dir():
        finish_transaction(file.parent, file.name)
    typed = _Run(file, run, model, run_data)
    numbers: dict[str, Any] = {}
    if recompute or _smoothed(file):
        require(data is None, "--data", "be left out where the certificate is computed again", data)
        differences, remarks = _recomputed(file, typed)
        text = f"Verified: every number of {file} was computed again and agrees to 1e-9 of its size."
    else:
        differences, remarks, text, numbers = _checked(file, data, typed)
    for line in remarks:
        messages.print(f"{line}.")
    if as_json:
        print_json({"verified": not differences, "differences": differences, "remarks": remarks, **numbers})
    elif text and (numbers or not differences):
        console.print(text, highlight=False, markup=False)
    if differences:
        for line in differences[1:10]:
            messages.print(line)
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        raise VerificationError(f"{file} is not verified: {differences[0]}{more}")


class _Run:
    """The run that a certificate is about, opened when it is first needed."""

    def __init__(self, file: Path, run: Path | None, model: str | None, run_data: str | None) -> None:
        self.file, self.typed = file, (run, model, run_data)

    def load(self, stated: Statement) -> LoadedRun:
        from certus.runs.verification import certified_folder

        run, *options = self.typed
        if run is None:
            run = certified_folder(self.file, stated.run, stated.content["about"]["digests"]["weights"])
        return cli.TypedRun(run, *options).load()


def _smoothed(file: Path) -> bool:
    try:
        content = read_json(file)
    except CorruptFileError:
        return False
    return isinstance(content, dict) and content.get("kind") == "smoothing"


def _checked(file: Path, data: Path | None, typed: _Run) -> tuple[list[str], list[str], str, dict[str, Any]]:
    """Return what does not follow, remarks, a table of the numbers, and the numbers."""
    from certus.certificates.files import check_certificate, read_certificate
    from certus.kernel.__main__ import table
    from certus.kernel.check import ROWS, sibling
    from certus.runs.certification import certified_data
    from certus.runs.verification import Statement

    try:
        certificate, rows = read_certificate(file), None
        if data is None and not sibling(file, ROWS).exists() and certificate.about:
            stated = Statement.read(file)
            trained = typed.load(stated)
            if other := stated.other_problem(trained):
                return other, [], "", {}
            rows = certified_data(trained, stated.settings).data
        checked = check_certificate(certificate, data or rows)
    except (CorruptFileError, ContradictionError, VerificationError) as reason:
        return [str(reason).removeprefix(f"{file} is not verified: ")], [], "", {}
    return [each.words for each in checked.failed], [], table(checked), _numbers(checked)


def _numbers(checked: Checked) -> dict[str, Any]:
    return {
        "evidence": checked.statement.evidence if checked.verified else None,
        "assumptions": list(checked.assumptions),
        "numbers": [each._asdict() | {"follows": each.follows} for each in checked.comparisons],
    }


def _recomputed(file: Path, typed: _Run) -> tuple[list[str], list[str]]:
    """Return the differences between the file and the recomputed certificate, and remarks."""
    from certus.cli.certify import compute, compute_smoothed
    from certus.runs.verification import Statement

    try:
        stated = Statement.read(file)
    except (CorruptFileError, ContradictionError) as reason:
        return [str(reason)], []
    trained = typed.load(stated)
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
