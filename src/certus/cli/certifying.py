"""What ``certus certify`` does around a certification: its folder, its bar, its picture."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

from certus.bars import share_bar
from certus.certificates.certificate import Certificate
from certus.certificates.kept import FileMemory
from certus.cli.output import messages, same_place
from certus.data import DataSet
from certus.decimals import at_most
from certus.errors import ContradictionError, FailedCheckError, UnsupportedError, require
from certus.figures.brackets import draw_bracket
from certus.runs.certification import CertifySettings, certified_source, certify_run
from certus.runs.owners import CERTIFICATES, certified_run
from certus.runs.trained import TrainedRun
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
    kept, them = ("levels are", "them") if count > 1 else ("level is", "it")
    return f"{count} finished {kept} kept in {memory.folder}; the same command continues with {them}."


def require_limit(limit: float | None, data: DataSet) -> None:
    """Raise ``ArgumentError`` for a limit that no bound could exceed, or every one: it would test nothing."""
    valid = limit is None or 0 <= limit < math.inf
    require(valid, "--fail-above", "be finite and not negative", limit)
    share = limit is None or data.classes is None or limit <= 1
    require(share, "--fail-above", "be a share of errors, at most 1 (0.2 for 20%)", limit)


def refuse_above(limit: float | None, bounds: Mapping[float, float | None], what: str) -> None:
    """Raise ``FailedCheckError`` unless every bound, by its ρ, is at most the limit; none is no bound."""
    for rho, bound in bounds.items() if limit is not None else ():
        if bound is None or not bound <= limit:  # type: ignore[operator]  # there is a limit
            proven = "nothing is proven of" if bound is None else f"at most {at_most(bound)} is proven of"
            raise FailedCheckError(f"--fail-above {limit:g}: at rho {rho:g} {proven} the {what}.")


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
            messages.print(f"{reason} All kept levels are computed again.")
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
