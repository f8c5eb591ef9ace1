"""Runs as ``certus gate`` and ``certus bundle`` read them: of networks, and of tree models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli.output import messages
from certus.errors import ArgumentError, ContradictionError, VerificationError, require
from certus.requirements import GateResult, Requirement

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate
    from certus.data import Samples
    from certus.kernel.check import Checked
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.settings import CertifySettings
    from certus.runs.tree_run import TreeRun
    from certus.smoothing.certificate import SmoothedCertificate


@dataclass(frozen=True)
class CertifiedNetwork:
    """The run of a network that requirements are judged on."""

    trained: LoadedRun
    locking: bool

    @property
    def path(self) -> Path:
        return self.trained.run.path

    @property
    def settings(self) -> CertifySettings:
        """Settings of a first certificate."""
        from certus.runs.factory import read_settings
        from certus.runs.settings import CertifySettings

        return CertifySettings(class_weights=read_settings(self.trained.run).class_weights)

    @property
    def rho(self) -> float | None:
        """The ρ of a first certificate; None if the run has none."""
        from certus.runs.loaded_run import training_rho

        own = training_rho(self.trained.run)
        return None if own is None else own[0]

    def certify(self, settings: CertifySettings, file: Path) -> None:
        from certus.cli.certify_support import write_certificate

        write_certificate(self.trained, settings, None, file.parent, include_data=False, locking=self.locking)

    def differences(self, file: Path) -> tuple[list[str], CertifySettings]:
        """List differences between the run and the problem of a certificate; also return its settings."""
        from certus.runs.verification import Statement

        stated = Statement.read(file)
        return stated.other_problem(self.trained), stated.settings

    def rows(self, settings: CertifySettings) -> Samples:
        """The samples of a certificate."""
        from certus.runs.certification import certified_data

        return certified_data(self.trained, settings).data

    def verify(self, certificate: Certificate, settings: CertifySettings) -> Checked:
        """Let the kernel check a certificate; raise unless it is about the problem of the run."""
        from certus.runs.certification import verify_for_run

        return verify_for_run(certificate, self.trained, settings, self.rows(settings))

    def attacked(
        self, wanted: Sequence[Requirement], settings: CertifySettings | None, confidence: float
    ) -> GateResult:
        """Judge accuracies under attack, on the samples of the certificate or the test samples."""
        from certus._names import NORMS
        from certus.attacks.evaluation import Trial, sweep
        from certus.certificates.gate import outcome

        trained = self.trained
        labelled = trained.data.classes is not None
        require(labelled, "--require", "judge no accuracy of a regression", repr(wanted[0].text))
        settings = self.settings if settings is None else settings
        rows, judged = self.rows(settings), []
        for requirement in wanted:
            attack = requirement.attack
            assert attack is not None
            trial = Trial(attack.name, NORMS[attack.norm], attack.epsilon)
            ((_, evaluation),) = sweep(
                trained.loss, rows, [trial], domain=trained.domain, cost=trained.cost, seed=settings.seed
            )
            interval = replace(evaluation, confidence=confidence).accuracy
            assert interval is not None
            value, evidence = interval.value, "attained by this attack"
            if requirement.population:
                value, evidence = interval.low, f"estimated, confidence {confidence:g}"
            judged.append(outcome(requirement, None, value, evidence))
        return GateResult(tuple(judged), (_UPPER,))


_UPPER = "An accuracy under attack is an upper bound: stronger attacks may find more errors."


@dataclass(frozen=True)
class CertifiedTrees:
    """The run of a tree model that requirements are judged on."""

    path: Path
    locking: bool
    allow_code: bool

    @cached_property
    def trained(self) -> TreeRun:
        from certus.runs.tree_run import load_tree_run

        return load_tree_run(self.path, allow_code=self.allow_code)

    @property
    def settings(self) -> CertifySettings:
        from certus.runs.settings import CertifySettings

        return CertifySettings(split="all")

    @property
    def rho(self) -> float | None:
        return None

    def certify(self, settings: CertifySettings, file: Path) -> None:
        from certus.cli.certify_support import write_files
        from certus.runs.tree_run import certify_tree_run

        with progress_bar(None, f"certifying {self.path}", messages) as progress:
            certificate = certify_tree_run(self._at(settings), settings, progress=progress)
        write_files(certificate, file.parent, str(self.path), locking=self.locking)

    def _at(self, settings: CertifySettings) -> TreeRun:
        """The run with the table of the settings."""
        from certus.runs.tree_run import load_tree_run

        if settings.data is None:
            return self.trained
        return load_tree_run(self.path, data=settings.data, allow_code=self.allow_code)

    def differences(self, file: Path) -> tuple[list[str], CertifySettings]:
        from certus.certificates.files import read_certificate
        from certus.runs.settings import CertifySettings
        from certus.storage.files import convert

        about, own = read_certificate(file).about, self.trained.settings
        try:
            settings, stated = convert(about["settings"], CertifySettings), about["digests"]["weights"]
        except (KeyError, TypeError):
            raise ArgumentError(f"`--certificate` must be one of a run; {file} names none.") from None
        return ([] if stated == own.model_sha256 else ["the model is another one"]), settings

    def rows(self, settings: CertifySettings) -> Samples:
        from certus.runs.tree_run import certified_samples

        return certified_samples(self._at(settings), settings)

    def verify(self, certificate: Certificate, settings: CertifySettings) -> Checked:
        """Let the kernel check a certificate; raise unless it is about the trees of the run."""
        from certus.runs.tree_run import verify_for_tree_run

        return verify_for_tree_run(certificate, self._at(settings), settings, self.rows(settings))

    def attacked(
        self, wanted: Sequence[Requirement], settings: CertifySettings | None, confidence: float
    ) -> GateResult:
        """Refuse attacks that follow gradients, which trees do not have."""
        rule = "judge no gradient attack of trees, which have no gradients"
        raise ArgumentError(f"`--require` must {rule}; got {wanted[0].text!r}.")


CertifiedRun = CertifiedNetwork | CertifiedTrees


def open_certified_run(run: cli.TypedRun, *, allow_code: bool, locking: bool) -> CertifiedRun:
    """Open the run of a network or of a tree model."""
    from certus.runs.tree_run import is_tree_run

    if is_tree_run(run.path):
        reason = "for the run of a tree model"
        cli.refuse_unused({"model": reason, "run_data": reason})
        return CertifiedTrees(run.path, locking, allow_code)
    cli.refuse_unused({"allow_code": "for a network: it is for tree models"})
    return CertifiedNetwork(run.load(), locking)


def stated_settings(certified: CertifiedRun, file: Path) -> CertifySettings:
    """Return the settings of a certificate.

    Raises ``ArgumentError`` if it is about other weights or data than the run, and ``VerificationError`` if
    the file contradicts itself.
    """
    from certus.storage.files import CorruptFileError

    try:
        other, settings = certified.differences(file)
    except (CorruptFileError, ContradictionError) as reason:
        raise VerificationError(f"{file} is not verified: {reason}") from None
    if other:
        remedy = f"`certus certify {certified.path}` certifies it anew"
        raise ArgumentError(f"`RUN` must be what {file} is about; {other[0]}. {remedy}.")
    return settings


def checked_certificate(
    certified: CertifiedRun, file: Path
) -> tuple[Certificate | SmoothedCertificate, CertifySettings]:
    """Read a certificate about a run, which the kernel then proves again.

    Raises the errors of ``stated_settings``, ``VerificationError`` if a number does not follow, and
    ``UnsupportedError`` if the certificate cannot be checked.
    """
    from certus.certificates.certificate import Certificate
    from certus.certificates.files import with_checked
    from certus.runs.verification import is_smoothed
    from certus.smoothing.certificate import SmoothedCertificate

    settings = stated_settings(certified, file)
    if is_smoothed(file):
        return SmoothedCertificate.load(file).verify(), settings
    certificate = Certificate.load(file)
    if certificate.no_proof is None:
        certificate = with_checked(certificate, certified.verify(certificate, settings))
    return certificate, settings
