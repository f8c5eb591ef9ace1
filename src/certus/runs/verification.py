"""Verification: check or recompute a certificate and compare it with its file.

The kernel checks a certificate by smoothing from the table beside it; ``--redraw`` recomputes it.

All noise is a function of the seed, so that smoothing repeats exactly. With another number of threads sums
are taken in another order, and a noisy copy on a decision boundary may change its side.
"""

from __future__ import annotations

import csv
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from certus.certificates.cache import differences, table_differences
from certus.certificates.certificate import Certificate
from certus.certificates.files import as_json, read_certificate, sample_table
from certus.errors import ArgumentError, require_confidence
from certus.kernel.evidence import Evidence
from certus.runs.certification import SmoothingSettings, fingerprint
from certus.runs.directory import RunDirectory
from certus.runs.loaded_run import LoadedRun
from certus.runs.records import SETTINGS, WEIGHTS
from certus.runs.settings import CertifySettings
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.files import CorruptFileError, RunError, Sha256, convert, read_json, read_regular
from certus.storage.write import without_checksum

TABLE = "samples.csv"
MOST_TABLE = 2**32
_VERSIONS = ("code_digest", "certus_version", "torch_version")
CIRCUMSTANCES = ("run", "threads", "environment", *_VERSIONS)
"""Entries of ``about`` without effect on any number: path of the run, versions and machine."""


class _Digests(Struct):
    problem: Sha256
    weights: Sha256
    samples: Sha256
    source: Sha256
    table: Sha256 | UnsetType = UNSET


class _Origin(Struct):
    run: str
    settings: dict[str, Any]
    digests: _Digests


def is_smoothed(file: Path) -> bool:
    """Whether a file is marked as a certificate by smoothing."""
    return _is_smoothed(read_json(file))


def _is_smoothed(content: object) -> bool:
    return isinstance(content, dict) and content.get("kind") == "smoothing"


@dataclass(frozen=True)
class Statement:
    """A certificate as stated in its file."""

    content: dict[str, Any]  # the JSON, without its digest
    run: Path  # where the run was
    settings: CertifySettings  # what was asked
    noise: SmoothingSettings | None = None  # further settings of a certificate by randomised smoothing
    table: bytes | None = None  # the bytes of the table beside it, if there is one
    smoothed: SmoothedCertificate | None = None  # the certificate itself, if it is one by smoothing

    @staticmethod
    def read(file: Path) -> Statement:
        """Read a certificate; raise ``CorruptFileError`` or ``ContradictionError`` if it is inconsistent.
        If a certification replaces both files meanwhile, they are read again."""
        before, content, noise = _bytes(file), read_json(file), None
        smoothed = _is_smoothed(content)
        certificate = SmoothedCertificate.load(file) if smoothed else read_certificate(file)
        try:
            origin = convert(certificate.about, _Origin)
            if smoothed:
                noise = convert(origin.settings.pop("noise", None), SmoothingSettings)
            settings = convert(origin.settings, CertifySettings)
            if smoothed:
                require_confidence(settings.confidence)
            elif origin.digests.table is UNSET:
                raise CorruptFileError("`digests` lacks table")
        except (CorruptFileError, ArgumentError) as reason:
            raise CorruptFileError(f"{file} is corrupt: its settings do not fit: {reason}") from None
        words = {"evidence": content["evidence"]}  # of what was read: stated
        content = _content(certificate) | words if smoothed else without_checksum(content)
        content.pop("check", None)  # which only the kernel reads
        table = None if smoothed else _bytes(file.parent / TABLE)
        by_smoothing = certificate if isinstance(certificate, SmoothedCertificate) else None
        stated = Statement(content, Path(origin.run), settings, noise, table, by_smoothing)
        return stated if _bytes(file) == before else Statement.read(file)

    def other_problem(self, trained: LoadedRun) -> list[str]:
        """List which of problem, weights, samples and source differ from those certified."""
        return [
            f"digests.{name}: the {name} are not those that were certified"
            for name, value in fingerprint(trained, self.settings).items()
            if self.content["about"]["digests"][name] != value
        ]

    def differences(self, again: Certificate | SmoothedCertificate) -> list[str]:
        """List the entries of the file, and of the table beside it, that differ from a recomputation."""
        now, about = _content(again), self.content["about"]
        names = CIRCUMSTANCES if self.noise is None else (*CIRCUMSTANCES, "numpy_version")
        now["about"] |= {name: about[name] for name in names if name in about}
        if isinstance(again, SmoothedCertificate):
            now["table"] = self.content["table"]  # predictions that change no number may differ
            return differences(self.content, now)
        now["about"]["digests"]["table"] = about["digests"]["table"]
        if self.content["evidence"] == Evidence.STATED:  # a certificate that was read, and saved again
            now["evidence"] = Evidence.STATED
        messages = differences(self.content, now)
        if self.table is None:
            return messages
        if hashlib.sha256(self.table).hexdigest() != about["digests"]["table"]:
            messages.append(f"{TABLE}: it is not the file that was written with the certificate")
        try:
            return messages + table_differences(self.table.decode(errors="replace"), sample_table(again))
        except csv.Error as reason:
            return [*messages, f"{TABLE} is not a CSV table: {reason}"]

    def remarks(self, again: Certificate | SmoothedCertificate) -> list[str]:
        """List circumstances that a reader of the outcome should know, such as other versions."""
        about, now = self.content["about"], again.about
        messages = [
            f"written with {name.replace('_', ' ')} {about.get(name)}; this is {now[name]}"
            for name in _VERSIONS
            if about.get(name) != now[name]
        ]
        if self.noise is not None and (threads := about.get("threads")) != now["threads"]:
            messages.append(
                f"written with {threads} threads; this process has {now['threads']}: "
                "predictions on a decision boundary may differ"
            )
        if self.noise is None and self.table is None:
            messages.append(f"{TABLE} does not exist: its rows were not compared")
        return messages


def _content(certificate: Certificate | SmoothedCertificate) -> dict[str, Any]:
    """The JSON of a certificate as read from a file: with lists for tuples, and without its digest."""
    content = certificate.as_json() if isinstance(certificate, SmoothedCertificate) else as_json(certificate)
    return without_checksum(json.loads(json.dumps(content)))


def _bytes(file: Path) -> bytes | None:
    """Content of a file; None if it does not exist."""
    try:
        return read_regular(file, MOST_TABLE)
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise CorruptFileError(f"{file} cannot be read: {reason.strerror}.") from None


def certified_folder(file: Path, run: Path, weights: str) -> Path:
    """Find the run of a certificate by the sha256 of its weights: beside or above the certificate, else at
    the recorded path, which may be relative."""
    around = file.absolute().parent
    places = [around.parent, around / run.name, around.parent / run.name, run]
    runs = [place for place in places if (place / SETTINGS).exists()]
    for place in runs:
        with suppress(RunError):
            if (RunDirectory(place).result or {}).get(WEIGHTS) == weights:
                return place
    return runs[0] if runs else run
