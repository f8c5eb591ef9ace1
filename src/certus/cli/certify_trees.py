"""``certus certify`` of the run of a tree model."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus import errors
from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.output import console, messages
from certus.errors import require
from certus.runs.settings import CertifySettings
from certus.storage import write

if TYPE_CHECKING:
    from certus.certificates import Certificate

_NETWORKS = (
    "gammas",
    "deployment",
    "local_radii",
    "gamma_rounds",
    "attack_steps",
    "unbounded",
    "class_weights",
    "split",
)
_NOISE = ("smoothing", "draws", "votes", "abstain")


def certify_tree_model(
    run: cli.TypedRun,
    options: dict[str, Any],
    *,
    width: float,
    time_limit: float | None,
    allow_code: bool,
    include_data: bool,
    output: Path | None,
    locking: bool,
    as_json: bool,
) -> Certificate:
    """Certify the rows of a tree model's table, write the certificate and show it."""
    from certus.display.render import parts_of
    from certus.runs import directory
    from certus.runs.tree_run import certify_tree_run, load_tree_run

    unused: dict[str, str | None] = dict.fromkeys(
        (*_NETWORKS, *_NOISE, "model"), "for the run of a tree model"
    )
    unused["run_data"] = "for the run of a tree model: --data names another table"
    if options["confidence"] is None:
        unused["inequality"] = "without --confidence: it applies to population bounds only"
    cli.refuse_unused(unused)
    require(bool(options["rho"]), "--rho", "be given for the run of a tree model", None)
    options |= {"split": "all", "class_weights": "equal", "gammas": None}
    settings = CertifySettings(**options)
    folder = output or run.path / (
        directory.OWN_LABELS_FOLDER if settings.own_labels else directory.CERTIFICATE_FOLDER
    )
    out.require_folder("--output", folder)
    if output is not None or directory.owner_of(folder) is not None:
        directory.require_owned_folder(directory.CERTIFICATE, "--output", folder)
    trained = load_tree_run(run.path, data=settings.data, allow_code=allow_code)
    if settings.confidence is not None:
        messages.print(
            "A confidence holds if the model was not fitted or tuned on these rows: nothing checks that."
        )
    with progress_bar(None, f"certifying {run.path}", messages) as progress:
        certificate = certify_tree_run(
            trained, settings, width=width, time_limit=time_limit, progress=progress
        )
    written = write_tree_certificate(
        certificate, folder, title=str(run.path), locking=locking, include_data=include_data
    )
    if as_json:
        out.print_json(json.loads((folder / written[0]).read_bytes()))
        return certificate
    for part in parts_of(certificate):
        console.print(part)
    console.print(f"Written: {', '.join([str(folder / written[0]), *written[1:]])}.")
    return certificate


def write_tree_certificate(
    certificate: Certificate, folder: Path, *, title: str, locking: bool, include_data: bool = False
) -> list[str]:
    """Write a certificate of a tree model; return the names of its files, the first that of the JSON."""
    from certus.certificates import files
    from certus.runs.verification import TABLE

    folder.mkdir(parents=True, exist_ok=True)
    file, picture = "certificate.json", "certificate.png"
    write.finish_transaction(folder, file, locking=locking)
    written = {TABLE: files.sample_table(certificate).encode()}
    certificate.about["digests"]["table"] = hashlib.sha256(written[TABLE]).hexdigest()
    written |= files.certificate_files(certificate, file, include_data=include_data)
    with write.file_transaction(folder, file, locking=locking) as new:
        drawn = True
        try:
            certificate.plot(new / picture, title=title)
        except errors.UnsupportedError as reason:
            drawn = False
            messages.print(f"No figure: {reason}")
        for each, content in written.items():
            write.write_atomically(new / each, content)
    if not drawn:
        with suppress(OSError):
            (folder / picture).unlink()
    files.remove_absent(folder / file, written)
    return [file, *(each for each in written if each != file), *([picture] if drawn else [])]
