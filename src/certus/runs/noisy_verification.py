"""What ``certus verify`` compares of a certificate by smoothing: the file, and the same computed again.

All noise is a function of the seed, so that the same network says the same again. On another number of
threads its sums are taken in another order, and a noisy copy right on a boundary may fall on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.certificates.cache import differences
from certus.errors import ArgumentError, require_confidence
from certus.runs.certification import CertifySettings
from certus.runs.noisy_certification import NoisySettings
from certus.runs.trained import TrainedRun
from certus.runs.verification import CIRCUMSTANCES, changed_digests, other_versions, require_digests
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.write import unsealed

_OWN = (*CIRCUMSTANCES, "numpy_version")


@dataclass(frozen=True)
class NoisyStatement:
    """A certificate by smoothing as its file has it; see ``Statement``."""

    content: dict[str, Any]
    run: Path
    settings: CertifySettings
    noisy: NoisySettings

    @staticmethod
    def read(file: Path) -> NoisyStatement:
        """Raises ``DamageError`` or ``ContradictionError`` for a file that cannot be true."""
        certificate = SmoothedCertificate.load(file)
        about = certificate.about
        try:
            asked = dict(about["settings"])
            noisy = NoisySettings(**asked.pop("noise"))
            settings, run = CertifySettings.from_json(asked), Path(about["run"])
            require_confidence(settings.confidence)
            require_digests(about["digests"], "problem", "weights", "samples", "source")
        except (AttributeError, KeyError, TypeError, ValueError, ArgumentError) as reason:
            raise DamageError(f"{file} is corrupt: its settings do not fit: {reason}") from None
        return NoisyStatement(unsealed(certificate.as_json()), run, settings, noisy)

    def other_problem(self, trained: TrainedRun) -> list[str]:
        """Whether the run, or its data, is another than the one that was certified."""
        return changed_digests(self.content["about"], trained, self.settings)

    def differences(self, again: SmoothedCertificate) -> list[str]:
        """Every number and word of the file that is another now."""
        now, about = unsealed(again.as_json()), self.content["about"]
        now["about"] = now["about"] | {name: about[name] for name in _OWN if name in about}
        return differences(_plain(self.content), _plain(now))

    def remarks(self, again: SmoothedCertificate) -> list[str]:
        """What a reader of the outcome should know beside it."""
        about = self.content["about"]
        found = other_versions(about, again.about)
        if (threads := about.get("threads")) != again.about["threads"]:
            found.append(
                f"{threads} threads made it; these are {again.about['threads']}: "
                "a prediction on a boundary may be another"
            )
        return found


def is_noisy(file: Path) -> bool:
    """Whether a file is, or was, a certificate by smoothing."""
    try:
        content = read_json(file)
    except RunError:
        return False
    return isinstance(content, dict) and content.get("kind") == "smoothing"


def _plain(content: Any) -> Any:
    """Tuples as the lists that JSON makes of them."""
    if isinstance(content, dict):
        return {name: _plain(each) for name, each in content.items()}
    return [_plain(each) for each in content] if isinstance(content, list | tuple) else content
