"""What ``certus certify`` does around a certification: its folder, its bar, its picture."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

from certus._format import at_most
from certus._progress import share_bar
from certus.certificates.cache import FileMemory
from certus.certificates.certificate import Certificate
from certus.cli.output import messages, same_place
from certus.datasets import SplitDataset
from certus.display.certificate_figures import draw_bracket
from certus.display.tables import error_name
from certus.errors import ArgumentError, ContradictionError, FailedCheckError, UnsupportedError, require
from certus.runs.certification import CertifySettings, certified_source, certify_run
from certus.runs.directory import (
    CERTIFICATE_FOLDER,
    CERTIFICATES,
    OWN_LABELS_FOLDER,
    RunDirectory,
    certified_labels,
    certified_run,
)
from certus.runs.loaded_run import TrainedRun, own_rho
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.tensors import digest

NAME = "certificate.json"


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def say_notes(trained: TrainedRun, settings: CertifySettings) -> None:
    """What is to be said of other data that were read by the run's categories and medians."""
    if settings.data is not None:
        for note in certified_source(trained, settings).notes:
            messages.print(note)


def require_same_run(trained: TrainedRun, folder: Path) -> None:
    """Raise ``ArgumentError`` for a folder with the certificate of another run."""
    for file in (folder / name for name in CERTIFICATES if (folder / name).exists()):
        known = certified_run(file)
        path, weights = known or ("nothing that can be read", "")
        same = weights == digest(dict(trained.loss.model.state_dict()))
        same = same or (known is not None and same_place(path, trained.run.path))
        rule = f"be a folder of its own, or hold a certificate of {trained.run.path}"
        require(same, "--output", rule, f"{folder}, which has one of {path}")


def kept_levels(memory: FileMemory) -> str:
    """What there is to go on from."""
    count = memory.count
    if count == 0:
        return "nothing is kept; the same command starts again."
    values = "values" if count > 1 else "value"
    return f"results at {count} {values} of gamma are kept in {memory.folder}; the same command continues."


def default_rho(run: RunDirectory) -> float:
    """The ρ of the run itself, announced; raises ``ArgumentError`` if it has none."""
    own = own_rho(run)
    if own is None:
        raise ArgumentError(
            f"`--rho` or `--epsilon` must be given for {run.path}, which has no rho of its own; got neither."
        )
    rho, origin = own
    messages.print(
        f"Neither --rho nor --epsilon given: rho = {rho:.4g}, a root mean square distance of "
        f"{rho**0.5:.3g}, by default: {origin}."
    )
    return rho


def require_same_labels(run: Path, folder: Path, *, predicted: bool) -> None:
    """Raise ``ArgumentError`` for a folder that has, or is for, a certificate of the other kind of labels."""
    file = folder / NAME
    other = file.exists() and certified_labels(file) == ("given" if predicted else "predicted")
    other = other or same_place(folder, run / (CERTIFICATE_FOLDER if predicted else OWN_LABELS_FOLDER))
    rule = "be another folder: certificates of given and of predicted labels are kept apart"
    require(not other, "--output", rule, folder)


def require_limit(limit: float | None, data: SplitDataset) -> None:
    """Raise ``ArgumentError`` for a limit that no bound could exceed, or every one: it would test nothing."""
    valid = limit is None or 0 <= limit < math.inf
    require(valid, "--fail-above", "be finite and not negative", limit)
    share = limit is None or data.classes is None or limit <= 1
    require(share, "--fail-above", "be a share of errors, at most 1 (0.2 for 20%)", limit)


def judged_bounds(certificate: Certificate) -> tuple[str, dict[float, float | None]]:
    """What ``--fail-above`` judges, in words, and its upper bound at every ρ that was asked for.

    The population's where the certificate has a confidence, else that of the certified samples: the error
    rate of a classifier, the mean loss of a regression.
    """
    people, labelled = certificate.population, certificate.classes is not None
    name = error_name(certificate.labels) if labelled else "mean loss"
    if people is None:
        side, whose = f"{'error' if labelled else 'loss'}_high", "the certified samples"
    else:
        side = f"population_{'error' if labelled else 'loss'}"
        whose = f"the population (confidence {people.confidence:g})"
        name += "" if labelled else f", clipped at {people.clip:g},"
    return f"{name} of {whose}", {one.rho: getattr(one, side) for one in certificate.curve()}


def judged_in_noise(certificate: SmoothedCertificate) -> tuple[str, dict[float, float | None]]:
    """The same of a certificate by smoothing: one noisy prediction, or the loss of a regression."""
    name = certificate.quantities[0].name
    what = "error rate of one noisy prediction" if name == "error" else f"{name} in noise"
    words = f"{what} for the population (confidence {certificate.confidence:g})"
    return words, {rho: certificate.bound(rho, name) for rho in certificate.rhos}


def refuse_above(limit: float | None, what: str, bounds: Mapping[float, float | None]) -> None:
    """Raise ``FailedCheckError`` unless every bound, by its ρ, is at most the limit; say which was judged."""
    if limit is None:
        return
    for rho, bound in bounds.items():
        if bound is None or not math.isfinite(bound):
            raise FailedCheckError(
                f"--fail-above {limit:g}: at rho {rho:g} no bound on the {what} is proven."
            )
        if not bound <= limit:
            raise FailedCheckError(
                f"--fail-above {limit:g}: at rho {rho:g} the bound on the {what} is {at_most(bound)}."
            )
    highest = max(bound for bound in bounds.values() if bound is not None)
    messages.print(f"--fail-above {limit:g} holds: the {what} is at most {at_most(highest)}.")


def compute(trained: TrainedRun, settings: CertifySettings, memory: FileMemory | None) -> Certificate:
    """With a progress bar, and remembering finished levels."""
    resumed = memory is not None and memory.count > 0
    with share_bar(None, f"certifying {trained.run.path}", messages) as told:
        try:
            certificate = certify_run(trained, settings, memory=memory, progress=told)
        except ContradictionError as reason:
            if memory is None or not resumed:
                raise
            memory.forget()
            messages.print(f"{reason} All kept results are computed again.")
            certificate = certify_run(trained, settings, progress=told)
    return certificate


def draw_certificate(certificate: Certificate, path: Path, trained: TrainedRun) -> bool:
    try:
        run, data = trained.run.path, trained.data.name
        title = str(run) if run.name == data else f"{run}, on {data}"
        draw_bracket(certificate, path, trained.data.units, title)
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True
