"""Compute, write and show certificates, for the commands that make them."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from certus import errors
from certus._progress import progress_bar
from certus.cli import output as out
from certus.cli.output import console, messages
from certus.runs.settings import CertifySettings
from certus.storage import write

if TYPE_CHECKING:
    from certus.certificates.cache import ProposalCache, TensorCache
    from certus.certificates.certificate import Certificate
    from certus.runs.certification import SmoothingSettings
    from certus.runs.loaded_run import LoadedRun
    from certus.smoothing.certificate import SmoothedCertificate
    from certus.smoothing.sampling import PredictionCache


def certificate_folder(run: Path, output: Path | None, *, own_labels: bool) -> Path:
    """Return the folder to write a certificate into, checked: ``--output``, or that of the run."""
    from certus.runs import directory

    folder = output or run / (directory.OWN_LABELS_FOLDER if own_labels else directory.CERTIFICATE_FOLDER)
    out.require_folder("--output", folder)
    if output is not None or directory.owner_of(folder) is not None:
        directory.require_owned_folder(directory.CERTIFICATE, "--output", folder)
    return folder


def write_certificate(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings | None,
    folder: Path,
    *,
    include_data: bool,
    locking: bool,
    jobs: int = 1,
) -> tuple[Certificate | SmoothedCertificate, list[str]]:
    """Certify a network and write the certificate; return it, and the names of its files, the first that of
    the JSON."""
    from certus.certificates.cache import ProposalCache
    from certus.runs.certification import fingerprint
    from certus.smoothing.sampling import PredictionCache

    folder.mkdir(parents=True, exist_ok=True)
    file = "certificate.json" if noise is None else "smoothing.json"
    write.finish_transaction(folder, file, locking=locking)
    typed = settings.as_json() | ({} if noise is None else {"noise": asdict(noise)})
    question = {"settings": typed, "digests": fingerprint(trained, settings)}
    place = folder / "unfinished", question, messages.print
    proposals, predictions = ProposalCache(*place), PredictionCache(*place)
    cache: TensorCache = proposals if noise is None else predictions

    def stored() -> str:
        what, count = "the predictions so far", cache.count
        if noise is None:
            what = f"results at {count} value{'s' if count > 1 else ''} of gamma"
        return (
            f"{what} are stored in {cache.folder}; run the same command to continue."
            if count
            else out.NOTHING_STORED
        )

    certificate: Certificate | SmoothedCertificate
    with out.if_interrupted(stored):
        if noise is None:
            certificate = compute(trained, settings, proposals, jobs)
        else:
            certificate = compute_smoothed(trained, settings, noise, predictions)
        try:
            names = write_files(
                certificate, folder, title_of(trained), include_data=include_data, locking=locking
            )
        except write.WriteError as error:
            raise write.WriteError(f"{error} {stored()}") from None
    cache.clear()
    return certificate, names


def write_files(
    certificate: Certificate | SmoothedCertificate,
    folder: Path,
    title: str,
    *,
    include_data: bool = False,
    with_table: bool = True,
    locking: bool = True,
) -> list[str]:
    """Write a certificate and its picture into a folder, all at once; remove what an earlier certificate has
    beside that.

    Args:
        title: of the picture.
        with_table: whether to write the table of samples.

    Returns: the names of the files, the first that of the JSON.
    """
    from certus.certificates import files
    from certus.runs.verification import TABLE
    from certus.smoothing.certificate import SmoothedCertificate

    written: dict[str, bytes] = {}
    if isinstance(certificate, SmoothedCertificate):
        file, picture, beside = "smoothing.json", "smoothing.png", ["smoothing.safetensors"]
    else:
        file, picture = "certificate.json", "certificate.png"
        table = files.sample_table(certificate).encode() if with_table else b""
        certificate.about["digests"]["table"] = hashlib.sha256(table).hexdigest()
        written |= {TABLE: table} if with_table else {}
        written |= files.certificate_files(certificate, file, include_data=include_data)
        beside = [name for name in written if name != file]
    folder.mkdir(parents=True, exist_ok=True)
    with write.file_transaction(folder, file, locking=locking) as new:
        drawn = draw_certificate(certificate, new / picture, title)
        if isinstance(certificate, SmoothedCertificate):
            certificate.save(new / file)
        for name, content in written.items():
            write.write_atomically(new / name, content)
    absent = [] if drawn else [picture]
    if not isinstance(certificate, SmoothedCertificate):
        files.remove_absent(folder / file, written)
        absent += [] if with_table else [TABLE]
    for name in absent:
        with suppress(OSError):
            (folder / name).unlink()
    return [file, *beside, *([picture] if drawn else [])]


def draw_certificate(certificate: Certificate | SmoothedCertificate, path: Path, title: str) -> bool:
    """Draw a certificate; return False where it cannot be drawn, and print the reason."""
    try:
        certificate.plot(path, title=title)
    except errors.UnsupportedError as reason:
        messages.print(f"No figure: {reason}")
        return False
    return True


def title_of(trained: LoadedRun) -> str:
    """Return the title of pictures of a run's certificates: its path and its data."""
    run, data = trained.run.path, trained.data.name
    return str(run) if run.name == data else f"{run}, on {data}"


def show_certificate(
    certificate: Certificate | SmoothedCertificate, folder: Path, names: list[str], *, as_json: bool
) -> None:
    """Print a certificate that was written into a folder, and the names of its files."""
    from certus.display.render import parts_of

    if as_json:
        out.print_json(json.loads((folder / names[0]).read_bytes()))
        return
    for part in parts_of(certificate):
        console.print(part)
    console.print(f"Written: {', '.join([str(folder / names[0]), *names[1:]])}.")


def compute(
    trained: LoadedRun, settings: CertifySettings, cache: ProposalCache | None, jobs: int = 1
) -> Certificate:
    """Return the certificate, with a progress bar; the points proposed at each γ are kept in the cache."""
    from certus.models.own_code import is_own_file
    from certus.runs.certification import certify_run

    with progress_bar(None, f"certifying {trained.run.path}", messages) as progress:
        try:
            return certify_run(trained, settings, cache=cache, progress=progress, n_jobs=jobs)
        except errors.UnreadableModelError as error:
            model = f" --model {trained.settings.model}" if is_own_file(trained.settings.model) else ""
            hint = f"certus certify {trained.run.path}{model} --smoothing SIGMA"
            raise errors.UnreadableModelError(f"{error} From the command line: {hint}.") from None


def compute_smoothed(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings,
    cache: PredictionCache | None,
) -> SmoothedCertificate:
    """Return the certificate by smoothing, with a progress bar."""
    from certus.runs.certification import certify_smoothed_run

    with progress_bar(None, f"certifying {trained.run.path} in noise", messages) as progress:
        return certify_smoothed_run(trained, settings, noise, progress, cache)
