"""A certificate by smoothing: for any ρ, how often the noisy model errs at most, with a confidence.

``certify_smoothed`` states the upper bound. From below stand moves that were found, measured at fresh noise;
``Population`` has the bound at ρ of a move of mean cost U and mean value L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from msgspec import Struct

from certus._render import Renderable
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import checked_rho
from certus.certificates.population import Move
from certus.errors import (
    ArgumentError,
    CertusError,
    contradiction,
    require,
    require_confidence,
    require_count,
    require_number,
    require_seed,
)
from certus.kernel.evidence import Evidence
from certus.kernel.knapsack import dual_bound
from certus.kernel.rounding import SOME
from certus.storage.files import CorruptFileError, NonNegative, Positive, RunError, convert, read_json
from certus.storage.write import add_checksum, verify_checksum, write_json

SCHEMA = 2
NAMES = ("error", "vote", "ideal_vote", "loss")


@dataclass(frozen=True)
class Quantity:
    """One failure rate or loss, from both sides, for every ρ.

    Attributes:
        name: "error": of one noisy draw; "vote": of the deployed vote, abstentions included; "ideal_vote": of
            the vote that knows h; "loss": the mean of min(ℓ, B) at one draw.
        ceiling: what it cannot exceed: 1, or B.
        means: γ → upper bound on the mean of its envelope, so that γρ + mean bounds it.
        start: at least, where nothing moves; moves: what was found, each at most that far and at least that
            bad. Both are absent for the ideal vote, which nobody can measure.
    """

    name: str
    ceiling: float
    means: dict[float, float]
    start: float = 0.0
    moves: tuple[Move, ...] = ()

    def high(self, rho: float) -> float:
        """At most, within ρ of the population."""
        return min(self.ceiling, dual_bound(self.means, rho))

    def low(self, rho: float) -> float:
        """At least, by moving a share of the population that costs no more than ρ."""
        values = [self.start]
        for move in self.moves:
            share = min(1.0, rho / move.cost) if move.cost > 0 else 1.0
            values.append((1 - share) * self.start + share * move.loss)
        return max(0.0, max(values) - SOME)


@dataclass(frozen=True)
class SmoothedBracket:
    """Everything at one ρ; None where a quantity was not asked for. See ``Quantity``.

    Attributes:
        distance: √ρ, in the units of the cost's norm.
    """

    rho: float
    distance: float
    error_low: float | None = None
    error_high: float | None = None
    vote_low: float | None = None
    vote_high: float | None = None
    ideal_vote_high: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None


@dataclass(frozen=True)
class SmoothedCertificate(Renderable):
    """What is proven of a model with noise on its inputs, made by ``certify_smoothed``.

    Attributes:
        rhos: those asked for; it answers for others, too.
        sigma: of the noise; draws: m, noisy copies of each sample; votes, abstain: of the deployed vote.
        confidence: 1 − δ, for all quantities, both sides and all ρ together.
        samples: n; calibrated: how many others chose Γ and c.
        seed: of the noise, and of the order in which the samples were taken.
        clip: B of the loss; None if there is none.
        about: settings, digests, counts and times, as JSON.
        repeats: rows that are equal to an earlier one, with its target: none of independent draws, as a rule.
    """

    rhos: tuple[float, ...]
    sigma: float
    draws: int
    votes: int
    abstain: float | None
    confidence: float
    samples: int
    calibrated: int
    seed: int
    clip: float | None
    quantities: tuple[Quantity, ...]
    about: dict[str, Any]
    repeats: int = 0

    def __post_init__(self) -> None:
        require_number("sigma", self.sigma)
        for name in ("draws", "votes", "samples", "calibrated"):
            require_count(name, getattr(self, name))
        require_count("repeats", self.repeats, least=0)
        for name in ("abstain", "clip"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name))
        require_confidence(self.confidence)
        require_seed(self.seed)
        require(isinstance(self.about, dict), "about", "be an object", type(self.about))
        names = [one.name for one in self.quantities]
        valid = len(names) > 0 and len(set(names)) == len(names) and set(names) <= set(NAMES)
        require(valid, "quantities", f"be some of {', '.join(NAMES)}, each once", names)
        for one in self.quantities:
            for cost in (0.0, *(move.cost for move in one.moves), *self.rhos):
                self._check(one, cost)

    def __repr__(self) -> str:
        rhos = ", ".join(f"{rho:g}" for rho in self.rhos)
        return f"<SmoothedCertificate of {self.samples} samples at rho {rhos}: {self.evidence}>"

    @property
    def evidence(self) -> Evidence:
        """Upper sides are proven, with the confidence, for noise that is exactly Gaussian."""
        return Evidence.PROVEN

    def quantity(self, name: str) -> Quantity:
        """The quantity of this name."""
        known = {one.name: one for one in self.quantities}
        require(name in known, "name", f"be one of {', '.join(known)}", repr(name))
        return known[name]

    def bound(self, rho: float, name: str = "error") -> float:
        """The proven upper bound within ρ of the population."""
        return self.quantity(name).high(checked_rho(rho))

    def lower(self, rho: float, name: str = "error") -> float:
        """The attained lower bound within ρ of the population, with the confidence."""
        return self.quantity(name).low(checked_rho(rho))

    def bracket(self, rho: float) -> SmoothedBracket:
        """All of it at one ρ; raises ``ContradictionError`` where an attained side exceeds a proven one."""
        sides: dict[str, float] = {}
        for one in self.quantities:
            self._check(one, checked_rho(rho))
            sides[f"{one.name}_high"] = one.high(rho)
            if one.name != "ideal_vote":
                sides[f"{one.name}_low"] = one.low(rho)
        return SmoothedBracket(rho, math.sqrt(rho), **sides)

    def curve(self, rhos: Sequence[float] | None = None) -> list[SmoothedBracket]:
        """Brackets at several ρ; at those asked for by default."""
        return [self.bracket(rho) for rho in (self.rhos if rhos is None else rhos)]

    @property
    def statement(self) -> str:
        """What is claimed, in words."""
        return (
            f"With probability at least {self.confidence:g} over {self.samples} independent draws and their "
            f"noise, all of these bounds hold for all rho at once, around the distribution that the samples "
            f"were drawn from, for the model with Gaussian noise of sigma {self.sigma:g} on its inputs."
            f"{repeat_words(self.repeats, self.samples)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, with a digest of its own."""
        content = asdict(self) | {
            "schema_version": SCHEMA,
            "kind": "smoothing",
            "evidence": str(self.evidence),
            "statement": self.statement,
            "quantities": [
                asdict(one) | {"means": [{"gamma": gamma, "mean": mean} for gamma, mean in one.means.items()]}
                for one in self.quantities
            ],
            "brackets": [asdict(one) for one in self.curve()],
        }
        return add_checksum(content)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_json(Path(path), self.as_json())

    @staticmethod
    def load(path: str | Path) -> SmoothedCertificate:
        """Read what ``save`` wrote, checked."""
        content = read_json(Path(path))
        if not isinstance(content, dict) or content.get("kind") != "smoothing":
            raise RunError(f"{path} is no certificate by smoothing.")
        if (version := content.get("schema_version")) != SCHEMA or isinstance(version, bool):
            raise RunError(f"{path} is of another version of certus: certify again.")
        content = verify_checksum(content, path)
        try:
            return _read(content)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, CertusError) as reason:
            line = " ".join(str(reason).split()) or type(reason).__name__
            raise CorruptFileError(f"{path} is corrupt: {line}") from None

    def _check(self, one: Quantity, rho: float) -> None:
        low, high = one.low(rho), one.high(rho)
        if not low <= high:
            raise contradiction(
                f"at rho = {rho:.6g} the population's {one.name} is at least {low!r} and at most {high!r}, "
                f"with confidence {self.confidence:g}: the confidence failed, the samples were not drawn "
                "independently, or the model answers differently when it is asked again",
                (f"{self.draws} noisy copies of each of {self.samples} samples",),
            )


class _Mean(Struct, forbid_unknown_fields=True):
    gamma: Positive
    mean: float


class _Move(Struct, forbid_unknown_fields=True):
    cost: NonNegative
    loss: float


class _Quantity(Struct, forbid_unknown_fields=True):
    name: str
    ceiling: float
    means: list[_Mean]
    start: float
    moves: list[_Move]


class _SmoothedFile(Struct):
    """Types of the nested entries; those of plain fields are checked by ``SmoothedCertificate``."""

    rhos: list[NonNegative]
    quantities: list[_Quantity]
    brackets: list[SmoothedBracket]
    clip: float | None


def _read(content: dict[str, Any]) -> SmoothedCertificate:
    quantities = []
    for entry in convert(content, _SmoothedFile).quantities:
        ceiling = content["clip"] if entry.name == "loss" else 1
        require(entry.ceiling == ceiling, "ceiling", f"be {ceiling}", entry.ceiling)
        means = {pair.gamma: pair.mean for pair in entry.means}
        moves = tuple(Move(move.cost, move.loss) for move in entry.moves)
        quantities.append(Quantity(entry.name, entry.ceiling, means, entry.start, moves))
    stored = {each.name: content[each.name] for each in fields(SmoothedCertificate) if each.name in content}
    stored |= {"rhos": tuple(content["rhos"]), "quantities": tuple(quantities)}
    certificate = SmoothedCertificate(**stored)
    follows = certificate.as_json()
    for name in ("brackets", "statement", "evidence"):
        if content[name] != follows[name]:
            raise ArgumentError(f"its {name} does not follow from the rest.")
    return certificate
