"""``certus certify --smoothing``: a certificate by smoothing, its files and its table."""

from __future__ import annotations

from pathlib import Path

from certus._progress import share_bar
from certus.cli.interruption import if_interrupted
from certus.cli.output import console, messages, print_json, show_parts
from certus.display.certificate_figures import draw_smoothed
from certus.display.tables import smoothed_parts
from certus.errors import UnsupportedError
from certus.runs.certification import CertifySettings, NoisySettings, certify_noisy_run, fingerprint
from certus.runs.loaded_run import TrainedRun
from certus.smoothing.certificate import SmoothedCertificate
from certus.smoothing.sampling import DrawMemory
from certus.storage.write import WriteError, appearing_together, complete, remove_files, write_json

READ_ONLY = "with --smoothing, which asks the network for predictions and reads nothing of it"
IDLE_WITH_NOISE = (
    "epsilon",
    "inequality",
    "predicted",
    "gamma",
    "balls",
    "refine",
    "everywhere",
    "class_weights",
)
IDLE_WITHOUT = ("draws", "votes", "abstain")
_NAME, _PICTURE = "smoothing.json", "smoothing.png"


def certify_in_noise(
    trained: TrainedRun,
    settings: CertifySettings,
    noisy: NoisySettings,
    folder: Path,
    *,
    locking: bool,
    as_json: bool,
) -> SmoothedCertificate:
    """Compute, write and show it; what the network said is kept until then."""
    folder.mkdir(parents=True, exist_ok=True)
    complete(folder, _NAME, locking=locking)
    question = {
        "settings": settings.as_json() | {"noise": noisy.as_json()},
        "digests": fingerprint(trained, settings),
    }
    memory = DrawMemory(folder / "unfinished", question, messages.print)
    with if_interrupted(lambda: _kept(memory)):
        certificate = compute_in_noise(trained, settings, noisy, memory)
        try:
            with appearing_together(folder, _NAME, locking=locking) as new:
                drawn = _draw(certificate, new / _PICTURE, trained)
                write_json(new / _NAME, certificate.as_json())
        except WriteError as reason:
            raise WriteError(f"{reason} {_kept(memory)}") from None
    if not drawn:
        remove_files(folder, [_PICTURE])
    memory.forget()
    if as_json:
        print_json(certificate.as_json())
    else:
        show_parts(smoothed_parts(certificate))
        console.print(f"Written: {folder / _NAME}{f', {_PICTURE}' if drawn else ''}.")
    return certificate


def compute_in_noise(
    trained: TrainedRun, settings: CertifySettings, noisy: NoisySettings, memory: DrawMemory | None
) -> SmoothedCertificate:
    """With a progress bar."""
    with share_bar(None, f"certifying {trained.run.path} in noise", messages) as told:
        return certify_noisy_run(trained, settings, noisy, told, memory)


def _kept(memory: DrawMemory) -> str:
    """What there is to go on from."""
    if memory.count == 0:
        return "nothing is kept; the same command starts again."
    return f"what the network said so far is kept in {memory.folder}; the same command continues with it."


def _draw(certificate: SmoothedCertificate, path: Path, trained: TrainedRun) -> bool:
    try:
        draw_smoothed(certificate, path, trained.data.units, f"{trained.data.name}: {trained.run.path}")
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True
