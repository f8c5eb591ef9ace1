"""Verification: recompute a certificate and compare it with its file.

All noise is a function of the seed, so that smoothing repeats exactly. With another number of threads sums
are taken in another order, and a noisy copy on a decision boundary may change its side.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from certus.certificates.cache import differences, table_differences
from certus.certificates.certificate import Certificate
from certus.certificates.files import as_json, read_certificate, read_content, sample_table
from certus.errors import ArgumentError, require_confidence
from certus.runs.certification import CertifySettings, SmoothingSettings, fingerprint
from certus.runs.directory import SETTINGS, RunDirectory
from certus.runs.files import WEIGHTS
from certus.runs.loaded_run import LoadedRun
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.files import CorruptFileError, RunError, Sha256, convert, read_json, read_regular
from certus.storage.write import without_checksum

TABLE = "samples.csv"
MOST_TABLE = 2**32
_VERSIONS = ("code_digest", "certus_version", "torch_version")
CIRCUMSTANCES = ("run", "threads", *_VERSIONS)
"""Entries of ``about`` that no number rests on: where the run was, and what computed the certificate."""


class _Digests(Struct):
    problem: Sha256
    weights: Sha256
    samples: Sha256
    source: Sha256
    table: Sha256 | UnsetType = UNSET


class _Origin(Struct):
    """Run, settings and digests of a certificate, from its ``about`` entry."""

    run: str
    settings: dict[str, Any]
    digests: _Digests


@dataclass(frozen=True)
class Statement:
    """A certificate as stated in its file.

    Attributes:
        content: the JSON, without its digest.
        run, settings: where the run was, and what was asked.
        table: the bytes of the table beside it; None if there is none.
    """

    file: Path
    content: dict[str, Any]
    run: Path
    settings: CertifySettings
    table: bytes | None

    @staticmethod
    def read(file: Path) -> Statement:
        """Read a certificate; raise ``CorruptFileError`` or ``ContradictionError`` if it cannot be true.

        A certification that ends meanwhile exchanges both files: they are read again if the first changed.
        """
        while True:
            before = _bytes(file)
            stated = Statement._read(file)
            if before == _bytes(file):
                return stated

    @staticmethod
    def _read(file: Path) -> Statement:
        about = read_certificate(file).about
        try:
            origin = convert(about, _Origin)
            settings = convert(origin.settings, CertifySettings)
            if origin.digests.table is UNSET:
                raise CorruptFileError("`digests` lacks table")
        except CorruptFileError as reason:
            raise CorruptFileError(f"{file} is corrupt: its settings do not fit: {reason}") from None
        return Statement(file, read_content(file), Path(origin.run), settings, _bytes(file.parent / TABLE))

    def other_problem(self, trained: LoadedRun) -> list[str]:
        """List digests of the run or its data that differ from those certified."""
        return changed_digests(self.content["about"], trained, self.settings)

    def differences(self, again: Certificate) -> list[str]:
        """List the entries of the file, and of the table beside it, that differ from a recomputation."""
        now, about = without_checksum(as_json(again)), self.content["about"]
        digests = now["about"]["digests"] | {"table": about["digests"]["table"]}
        same = {name: about[name] for name in CIRCUMSTANCES if name in about}
        now["about"] = now["about"] | same | {"digests": digests}
        return differences(self.content, now) + self._table_differences(again)

    def _table_differences(self, again: Certificate) -> list[str]:
        content = self.table
        if content is None:
            return []
        other = hashlib.sha256(content).hexdigest() != self.content["about"]["digests"]["table"]
        messages = [f"{TABLE}: it is not the file that was written with the certificate"] if other else []
        try:
            return messages + table_differences(content.decode(errors="replace"), sample_table(again))
        except csv.Error as reason:
            return [*messages, f"{TABLE}: it is no table: {reason}"]

    def remarks(self, again: Certificate) -> list[str]:
        """List circumstances that a reader of the outcome should know."""
        messages = other_versions(self.content["about"], again.about)
        if self.table is None:
            messages.append(f"{TABLE} is absent: its rows were not compared")
        return messages


def certified_folder(file: Path, run: Path, weights: str) -> Path:
    """Find the run that a certificate is about: beside the certificate, or at the recorded path.

    A certificate in RUN/certificate belongs to RUN; one that was copied together with its run finds it next
    to its own folder. The recorded path comes last: a relative one depends on the current folder.

    Args:
        run: the recorded path; weights: the recorded sha256, which decides among several runs.
    """
    around = file.absolute().parent
    places = [around.parent, around / run.name, around.parent / run.name, run]
    runs = [place for place in places if (place / SETTINGS).exists()]
    certified = (place for place in runs if _weights_of(place) == weights)
    return next(certified, runs[0] if runs else run)


def _weights_of(place: Path) -> object:
    try:
        return (RunDirectory(place).result or {}).get(WEIGHTS)
    except RunError:
        return None


def changed_digests(about: dict[str, Any], trained: LoadedRun, settings: CertifySettings) -> list[str]:
    """List which of problem, weights, samples and source differ from those certified."""
    return [
        f"digests.{name}: the {name} are not those that were certified"
        for name, value in fingerprint(trained, settings).items()
        if about["digests"][name] != value
    ]


def other_versions(stated: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List versions of the source code, of certus and of torch that differ."""
    return [
        f"{name.replace('_', ' ')} {stated.get(name)} made it; this is {now[name]}"
        for name in _VERSIONS
        if stated.get(name) != now[name]
    ]


def _bytes(file: Path) -> bytes | None:
    """Content of a file; None if it does not exist."""
    try:
        return read_regular(file, MOST_TABLE)
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise CorruptFileError(f"{file} cannot be read: {reason.strerror}.") from None


_OWN = (*CIRCUMSTANCES, "numpy_version")


@dataclass(frozen=True)
class SmoothedStatement:
    """A certificate by randomised smoothing as stated in its file; see ``Statement``."""

    content: dict[str, Any]
    run: Path
    settings: CertifySettings
    noisy: SmoothingSettings

    @staticmethod
    def read(file: Path) -> SmoothedStatement:
        """Read a certificate; raise ``CorruptFileError`` or ``ContradictionError`` if it cannot be true."""
        certificate = SmoothedCertificate.load(file)
        about = certificate.about
        try:
            origin = convert(about, _Origin)
            noisy = convert(origin.settings.pop("noise", None), SmoothingSettings)
            settings = convert(origin.settings, CertifySettings)
            require_confidence(settings.confidence)
        except (CorruptFileError, ArgumentError) as reason:
            raise CorruptFileError(f"{file} is corrupt: its settings do not fit: {reason}") from None
        content = without_checksum(certificate.as_json())
        return SmoothedStatement(content, Path(origin.run), settings, noisy)

    def other_problem(self, trained: LoadedRun) -> list[str]:
        """List digests of the run or its data that differ from those certified."""
        return changed_digests(self.content["about"], trained, self.settings)

    def differences(self, again: SmoothedCertificate) -> list[str]:
        """List the entries of the file that differ from a recomputation."""
        now, about = without_checksum(again.as_json()), self.content["about"]
        now["about"] = now["about"] | {name: about[name] for name in _OWN if name in about}
        return differences(_plain(self.content), _plain(now))

    def remarks(self, again: SmoothedCertificate) -> list[str]:
        """List circumstances that a reader of the outcome should know."""
        about = self.content["about"]
        messages = other_versions(about, again.about)
        if (threads := about.get("threads")) != again.about["threads"]:
            messages.append(
                f"{threads} threads made it; these are {again.about['threads']}: "
                "a prediction on a boundary may be another"
            )
        return messages


def is_smoothed(file: Path) -> bool:
    """Whether a file is a certificate by randomised smoothing."""
    try:
        content = read_json(file)
    except RunError:
        return False
    return isinstance(content, dict) and content.get("kind") == "smoothing"


def _plain(content: Any) -> Any:
    """Replace tuples by lists, as JSON does."""
    if isinstance(content, dict):
        return {name: _plain(each) for name, each in content.items()}
    return [_plain(each) for each in content] if isinstance(content, list | tuple) else content
