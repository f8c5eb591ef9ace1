"""``certus bundle``: a zip file with a certificate and everything that checks it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._progress import counting_bar
from certus.cli import options as cli
from certus.cli.certified_run import (
    CertifiedNetwork,
    CertifiedRun,
    CertifiedTrees,
    checked_certificate,
    open_certified_run,
)
from certus.cli.output import console, messages, require_file
from certus.errors import ArgumentError, require
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate
    from certus.runs.tree_run import TreeRun

_FILES = ("certificate.json", "graph.json", "graph.safetensors", "witnesses.safetensors", "samples.csv")
_SMOOTHED = ("smoothing.json", "smoothing.safetensors")


@cli.command("bundle")
@cli.option("--output", "-o", type=cli.PATH, default="evidence.zip", help="Zip file to write.")
@cli.option("--include-data", is_flag=True, help="Include the certified rows.")
@cli.option(
    "--certificate",
    "file",
    type=cli.PATH,
    show_default="that of RUN",
    help="certificate.json or smoothing.json to bundle.",
)
@cli.option("--report/--no-report", "with_report", default=True, help="Include the HTML report.")
@cli.option("--author", default="", help="Author, for the model card and the report.")
@cli.option("--purpose", default="", help="Purpose of the model, for the model card and the report.")
@cli.allow_code_option
@cli.takes_run
def bundle(
    run: cli.TypedRun,
    output: Path,
    include_data: bool,
    file: Path | None,
    with_report: bool,
    author: str,
    purpose: str,
    allow_code: bool,
) -> None:
    """Write an evidence bundle: one zip file that others can check.

    \b
    certus bundle runs/digits -o evidence.zip
    certus bundle runs/digits --include-data
    unzip evidence.zip && python -m certus.kernel certificate

    RUN is a complete run directory with a certificate (certus certify). The bundle has the certificate, the
    network as certified, the witnesses of its bounds, digests of data and weights, the environment that was
    recorded at certification, the report, a model card (Markdown with a YAML header), and the command that
    checks everything with the kernel alone. The kernel checks the certificate before it is bundled. The same
    run and certificate make the same file, bit for bit.
    """
    from certus.certificates.certificate import Certificate
    from certus.certificates.files import certified_rows
    from certus.display import bundle as parts
    from certus.kernel.check import ROWS, sibling
    from certus.runs.directory import CERTIFICATE_FOLDER

    require_file("--output", output)
    certified = open_certified_run(run, allow_code=allow_code, locking=False)
    if file is None:
        folder = certified.path / CERTIFICATE_FOLDER
        stored = [folder / name for name in (_FILES[0], _SMOOTHED[0]) if (folder / name).exists()]
        if not stored:
            remedy = f"`certus certify {certified.path}` makes one"
            raise ArgumentError(f"`RUN` must have a certificate; {folder} has none: {remedy}.")
        file = stored[0]
    require(file.is_file(), "--certificate", "be a file, such as certificate.json", file)
    certificate, settings = checked_certificate(certified, file)
    smoothed = not isinstance(certificate, Certificate)
    if smoothed:
        cli.refuse_unused({"include_data": "for a certificate by smoothing, which is checked from its table"})
    files: dict[str, bytes] = {}
    for name in _SMOOTHED if smoothed else _FILES:
        place = file.with_name(name) if smoothed or name == "samples.csv" else sibling(file, name)
        place = file if name in (_FILES[0], _SMOOTHED[0]) else place
        if place.exists():
            files[f"{parts.FOLDER}/{name}"] = place.read_bytes()
    rows = False
    if isinstance(certificate, Certificate) and include_data:
        files[f"{parts.FOLDER}/{ROWS}"] = certified_rows(Certificate.load(file), certified.rows(settings))
        rows = True
    model, measured = _described(certified)
    files[parts.CARD] = parts.model_card(
        certificate,
        name=certified.path.absolute().name,
        model=model,
        measured=measured,
        author=author,
        purpose=purpose,
    )
    if with_report and isinstance(certified, CertifiedNetwork):
        files[parts.REPORT] = _report(certified, author, purpose)
    elif with_report and isinstance(certificate, Certificate) and isinstance(certified, CertifiedTrees):
        files[parts.REPORT] = _tree_report(certified.trained, certificate, author, purpose)
    files[parts.README] = parts.readme(certificate, [*files, parts.MANIFEST], rows=rows)
    files[parts.MANIFEST] = parts.manifest(certificate, files, model=model, rows=rows)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, parts.zip_bytes(files))
    command = parts.check_command(certificate, rows=rows)
    console.print(f"Written: {output}, {len(files)} files. To check it: unzip {output}; {command}")


def _described(certified: CertifiedRun) -> tuple[dict[str, Any], dict[str, float]]:
    """Properties of the model in words, and what was measured on the data as they are."""
    if not isinstance(certified, CertifiedNetwork):
        own, right = certified.trained.settings, certified.trained.right
        model = {
            "Model": f"{own.model} ({certified.trained.reading.library})",
            "SHA-256 of the model's file": own.model_sha256,
            "SHA-256 of its table": own.data_sha256,
        }
        return model, {} if right is None else {"accuracy": right}
    from certus.runs.records import WEIGHTS

    trained = certified.trained
    settings, result = trained.settings, trained.run.result or {}
    method = settings.method + "".join(
        f", {name} {value:g}"
        for name, value in (("rho", settings.rho), ("gamma", settings.gamma), ("epsilon", settings.epsilon))
        if value is not None
    )
    model = {
        "Model": settings.model,
        "Training": f"{method}, {settings.epochs} epochs, seed {settings.seed}",
        "Data": trained.data.name,
        "SHA-256 of the weights": result.get(WEIGHTS, ""),
        "SHA-256 of the data": trained.data.sha256,
    }
    return model, {f"test {name}": float(value) for name, value in result.get("test", {}).items()}


def _report(certified: CertifiedNetwork, author: str, purpose: str) -> bytes:
    """The report of ``certus report`` with its defaults, without a date."""
    from certus.display.report.contents import attack_unit, evaluations, measure_run
    from certus.display.report.opening import Purpose
    from certus.display.report.page import render_report

    trained = certified.trained
    with counting_bar(messages, "measuring", evaluations(trained, _SAMPLES)) as advance:
        report = measure_run(trained, attack_unit(trained), _SAMPLES, 0, advance)
    return render_report([report], Purpose("", author, purpose)).encode()


def _tree_report(trained: TreeRun, certificate: Certificate, author: str, purpose: str) -> bytes:
    """The report about a tree model, without a date."""
    from certus.display.report.opening import Purpose
    from certus.display.report.trees import render_tree_report

    return render_tree_report(trained, certificate, (), Purpose("", author, purpose)).encode()


_SAMPLES = 200
