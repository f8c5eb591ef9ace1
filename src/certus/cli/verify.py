"""``certus verify``: check a certificate by the kernel, or recompute it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli.output import console, messages, print_json
from certus.errors import ArgumentError, ContradictionError, VerificationError, require
from certus.storage.files import CorruptFileError
from certus.storage.write import finish_transaction, pending_transaction

if TYPE_CHECKING:
    from certus.certificates import Certificate
    from certus.kernel.check import Checked
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.verification import Statement
    from certus.smoothing.certificate import SmoothedCertificate


@dataclass(frozen=True)
class _Outcome:
    """Failures, remarks, the text of a success, and further entries of the JSON."""

    differences: list[str]
    remarks: list[str] = field(default_factory=list)
    text: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


@cli.command("verify")
@cli.argument("file", type=cli.PATH)
@cli.option("--data", type=cli.PATH, help="Safetensors file of the rows (inputs, targets, any weights).")
@cli.option("--recompute", is_flag=True, help="Certify again, and compare every number of the file.")
@cli.option(
    "--redraw", is_flag=True, help="Draw the noise of a smoothing.json again, and ask the model again."
)
@cli.option("--run", type=cli.PATH, help="Run directory, if it is neither beside FILE nor at its old place.")
@cli.allow_code_option
@cli.model_option
@cli.run_data_option
@cli.json_option
def verify(
    file: Path,
    data: Path | None,
    recompute: bool,
    redraw: bool,
    run: Path | None,
    allow_code: bool,
    model: str | None,
    run_data: str | None,
    as_json: bool,
) -> None:
    """Check a certificate, and fail if a number does not follow.

    \b
    certus verify runs/digits/certificate/certificate.json
    certus verify certificate.json --data rows.safetensors
    certus verify runs/digits/certificate/certificate.json --recompute
    certus verify runs/noisy/certificate/smoothing.json --redraw

    FILE is a certificate.json or a smoothing.json. The upper sides of a certificate.json are proven again
    from the network and the witnesses stored beside it: nothing is searched or attacked. The rows are those
    beside it (certify --include-data), of --data, or of the run. The upper sides of a smoothing.json are
    proven from the table beside it. --recompute and --redraw compute every number with the model again.
    Numbers may differ by 1e-9 of their size. Exit code 0: verified. 1: a number does not follow, or an entry
    was changed. 2: nothing was checked, because FILE is not a certificate, or because it, its table, its run
    or the rows are missing. 3: certus itself failed.
    """
    rule = f"be a file, such as {file / 'certificate.json'}"
    require(not file.is_dir(), "FILE", rule, f"the folder {file}")
    if pending_transaction(file.parent).is_dir():
        finish_transaction(file.parent, file.name)
    outcome = _judge(file, data, _Run(file, run, model, run_data, allow_code), recompute, redraw)
    differences, remarks = outcome.differences, outcome.remarks
    for line in remarks:
        messages.print(f"{line}.")
    if as_json:
        print_json(
            {"verified": not differences, "differences": differences, "remarks": remarks} | outcome.numbers
        )
    elif outcome.text and (outcome.numbers or not differences):
        console.print(outcome.text, highlight=False, markup=False)
    if differences:
        for line in differences[1:10]:
            messages.print(line)
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        raise VerificationError(f"{file} is not verified: {differences[0]}{more}")


@dataclass(frozen=True)
class _Run:
    """The run that a certificate is about, opened when it is first needed."""

    file: Path
    path: Path | None
    model: str | None
    data: str | None
    allow_code: bool

    def load(self, stated: Statement) -> LoadedRun:
        from certus.runs.verification import certified_folder

        weights = stated.content["about"]["digests"]["weights"]
        path = certified_folder(self.file, stated.run, weights) if self.path is None else self.path
        return cli.TypedRun(path, self.model, self.data).load()


def _judge(file: Path, data: Path | None, typed: _Run, recompute: bool, redraw: bool) -> _Outcome:
    """Check or recompute the certificate, whichever kind it is."""
    from certus.certificates.files import read_certificate
    from certus.runs.verification import Statement, is_smoothed

    try:
        if not is_smoothed(file):
            cli.refuse_unused({"redraw": "for a certificate without noise, which nothing draws"})
            if not recompute:
                return _checked(file, data, typed)
            if _of_trees(read_certificate(file)):
                cli.refuse_unused({"recompute": "for a certificate of trees: certify again, and compare"})
            cli.refuse_unused({"data": "with --recompute, which reads the data of the run"})
        else:
            words = "for a smoothing.json, which holds a table of predictions and no rows"
            cli.refuse_unused({"recompute": "for a smoothing.json: pass --redraw", "data": words})
        stated = Statement.read(file)
        if stated.smoothed is not None and not redraw:
            words = "without --redraw: a smoothing.json is checked from the table beside it"
            cli.refuse_unused(dict.fromkeys(("run", "model", "run_data"), words))
            return _check_table(file, stated.smoothed)
    except (CorruptFileError, ContradictionError, VerificationError) as reason:
        return _Outcome([str(reason).removeprefix(f"{file} is not verified: ")])
    return _recomputed(file, stated, typed)


def _checked(file: Path, data: Path | None, typed: _Run) -> _Outcome:
    """Let the kernel check a certificate from its files and the rows."""
    from certus.certificates.files import check_certificate, read_certificate
    from certus.kernel.__main__ import table
    from certus.kernel.check import ROWS, sibling
    from certus.runs.certification import certified_data, verify_for_run
    from certus.runs.verification import Statement

    certificate = read_certificate(file)
    if data is not None or sibling(file, ROWS).exists() or "run" not in certificate.about:
        checked = check_certificate(certificate, data)
    elif _of_trees(certificate):
        checked = _checked_trees(certificate, typed)
    else:
        stated = Statement.read(file)
        trained = typed.load(stated)
        if other := stated.other_problem(trained):
            return _Outcome(other)
        rows = certified_data(trained, stated.settings).data
        checked = verify_for_run(certificate, trained, stated.settings, rows)
    numbers = {
        "evidence": checked.statement.evidence if checked.verified else None,
        "assumptions": list(checked.assumptions),
        "numbers": [each._asdict() | {"follows": each.follows} for each in checked.comparisons],
    }
    return _Outcome([each.words for each in checked.failed], [], table(checked), numbers)


def _of_trees(certificate: Certificate) -> bool:
    return certificate.about.get("kind") == "trees"


def _checked_trees(certificate: Certificate, typed: _Run) -> Checked:
    """Let the kernel check a certificate on the rows of the run of a tree model."""
    from certus.cli.certified_run import CertifiedTrees
    from certus.runs.settings import CertifySettings
    from certus.storage.files import convert

    path = Path(certificate.about["run"]) if typed.path is None else typed.path
    certified = CertifiedTrees(path, locking=False, allow_code=typed.allow_code)
    return certified.verify(certificate, convert(certificate.about["settings"], CertifySettings))


def _check_table(file: Path, certificate: SmoothedCertificate) -> _Outcome:
    """Let the kernel check a certificate by smoothing from its table."""
    from certus.kernel.smoothing import PREMISES

    certificate.verify()
    remarks = [f"Premise, not checked without --redraw: {premise}" for premise in PREMISES]
    text = f"Verified: the kernel proves every upper side of {file} from the table beside it."
    return _Outcome([], [*remarks, "Lower sides were not measured again"], text)


def _recomputed(file: Path, stated: Statement, typed: _Run) -> _Outcome:
    """Compare the file with the recomputed certificate."""
    from certus.cli.certify_support import compute, compute_smoothed

    trained = typed.load(stated)
    if other := stated.other_problem(trained):
        return _Outcome(other)
    try:
        certificate = (
            compute(trained, stated.settings, None)
            if stated.noise is None
            else compute_smoothed(trained, stated.settings, stated.noise, None)
        )
    except (ArgumentError, ContradictionError) as reason:
        return _Outcome([f"it cannot be computed again: {reason}"])
    text = f"Verified: every number of {file} was computed again and agrees to 1e-9 of its size."
    return _Outcome(stated.differences(certificate), stated.remarks(certificate), text)
