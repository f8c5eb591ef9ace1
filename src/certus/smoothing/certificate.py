"""A certificate by smoothing: bounds on the error rate of the noisy model for any ρ, with a confidence.

The kernel proves the upper bounds from a table of counts or losses, designs and claims, which is stored
beside the JSON. That the table comes from this model and exact Gaussian noise is a premise of the statement.
Lower bounds rest on moves that were found, measured with fresh noise; ``Population`` derives the bound at ρ
from a move of mean cost U and mean value L.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from certus._render import Renderable
from certus.certificates.batching import repeat_words
from certus.certificates.cache import differences
from certus.certificates.certificate import checked_rho
from certus.certificates.gate import NOT_CHECKED, outcome
from certus.certificates.population import Move
from certus.errors import (
    ArgumentError,
    CertusError,
    VerificationError,
    contradiction,
    require,
    require_confidence,
    require_count,
    require_number,
    require_seed,
)
from certus.kernel.error_rates import dual_bound
from certus.kernel.evidence import Evidence
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME
from certus.kernel.smoothing import PREMISES, GammaDesign, SmoothedStatement, SmoothedTable, VotingRule
from certus.requirements import GateResult, Requirement, parsed
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, voting_rule
from certus.storage.files import CorruptFileError, NonNegative, Positive, RunError, Sha256, convert, read_json
from certus.storage.tensors import digest, load_tensors, save_tensors
from certus.storage.write import add_checksum, verify_checksum, write_json

SCHEMA = 3
NAMES = ("error", "vote", "ideal_vote", "loss")
_NOT_JSON = ("proof", "tables", "source")
_MOST_POINTS = 2**18  # of a grid that a file asks for: twice those of the largest penalty


def rules_of(votes: int, abstain: float | None) -> dict[str, VotingRule]:
    """Return the voting rule of each quantity."""
    rules = (ONE_DRAW, voting_rule(votes, abstain), IDEAL_VOTE, ONE_DRAW)
    return dict(zip(NAMES, rules, strict=True))


@dataclass(frozen=True)
class Quantity:
    """Bounds on a failure rate or a loss, for every ρ.

    Attributes:
        name: "error": error rate of one noisy draw; "vote": of the deployed vote, with abstentions as errors;
            "ideal_vote": of the vote of infinitely many draws; "loss": mean of min(ℓ, B) at one draw.
        ceiling: largest possible value: 1, or B.
        means: γ → upper bound on the mean of the envelope; γρ + mean is a bound at ρ.
        start: lower bound for unmoved samples; moves: moves found, with an upper bound on the cost and a
            lower bound on the value. Absent for the ideal vote, which cannot be measured.
    """

    name: str
    ceiling: float
    means: dict[float, float]
    start: float = 0.0
    moves: tuple[Move, ...] = ()

    def high(self, rho: float) -> float:
        """Return the upper bound within ρ of the population."""
        return min(self.ceiling, dual_bound(self.means, rho))

    def low(self, rho: float) -> float:
        """Return the lower bound: move a share of the population at a mean cost of at most ρ."""
        values = [self.start]
        for move in self.moves:
            share = min(1.0, rho / move.cost) if move.cost > 0 else 1.0
            values.append((1 - share) * self.start + share * move.loss)
        return max(0.0, max(values) - SOME)


@dataclass(frozen=True)
class SmoothedBracket:
    """All bounds at one ρ; None for quantities that were not requested. See ``Quantity``.

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
    """Bounds for a model with Gaussian noise on its inputs, from ``certify_smoothed``.

    Attributes:
        rhos: the requested ρ; the certificate also answers for others.
        sigma: σ of the noise; draws: m, noisy copies of each sample; votes, abstain: settings of the deployed
            vote.
        confidence: 1 − δ, for all quantities, both sides and all ρ together.
        samples: n; calibrated: number of calibration samples.
        seed: seed of the noise and of the order of the samples.
        clip: B of the loss; None if there is none.
        about: settings, digests, counts and times, as JSON.
        repeats: number of rows that equal an earlier row and its target; independent draws rarely have any.
        label_price: the price of changing a label; None if labels never change.
        table: digest of ``tables``.
        proof: the kernel's statement; None until the kernel has proven it.
        tables: by quantity, the data from which the kernel proves the upper sides; ``source``: their file.
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
    label_price: float | None = None
    table: str | None = None
    proof: SmoothedStatement | None = field(default=None, compare=False, repr=False)
    tables: Mapping[str, SmoothedTable] | None = field(default=None, compare=False, repr=False)
    source: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_number("sigma", self.sigma)
        for name in ("draws", "votes", "samples", "calibrated"):
            require_count(name, getattr(self, name))
        require_count("repeats", self.repeats, least=0)
        for name in ("abstain", "clip", "label_price"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name))
        require_confidence(self.confidence)
        require_seed(self.seed)
        require(isinstance(self.about, dict), "about", "be an object", type(self.about))
        names = [quantity.name for quantity in self.quantities]
        valid = len(names) > 0 and len(set(names)) == len(names) and set(names) <= set(NAMES)
        require(valid, "quantities", f"be some of {', '.join(NAMES)}, each once", names)
        rules_of(self.votes, self.abstain)
        for quantity in self.quantities:
            ceiling = self.clip if quantity.name == "loss" else 1
            require(quantity.ceiling == ceiling, "ceiling", f"be {ceiling}", quantity.ceiling)
            for cost in (0.0, *(move.cost for move in quantity.moves), *self.rhos):
                self._check(quantity, cost)

    def __repr__(self) -> str:
        rhos = ", ".join(f"{rho:g}" for rho in self.rhos)
        words = f"{self.evidence}, with the premises that {' and that '.join(PREMISES)}"
        return f"<SmoothedCertificate of {self.samples} samples at rho {rhos}: {words}>"

    @property
    def evidence(self) -> Evidence:
        """Evidence of the upper sides: that of the kernel's statement, if it agrees with the certificate;
        else stated."""
        return self.proof.evidence if self.proof is not None and self.proof == self.claim else Evidence.STATED

    @property
    def lower_evidence(self) -> Evidence:
        """Evidence of the lower sides: attained, or stated if they were read from a file."""
        return Evidence.ATTAINED if self.source is None else Evidence.STATED

    @property
    def claim(self) -> SmoothedStatement:
        """The upper sides as a statement without proof."""
        rules = rules_of(self.votes, self.abstain)
        return SmoothedStatement(
            *(self.sigma, self.confidence, self.samples, self.draws, self.seed, self.label_price),
            rules={quantity.name: (rules[quantity.name], quantity.ceiling) for quantity in self.quantities},
            means={quantity.name: quantity.means for quantity in self.quantities},
        )

    def verify(self) -> SmoothedCertificate:
        """Let the kernel prove the upper sides from the table. The model is not evaluated, and loaded lower
        sides stay stated.

        Returns: the proven certificate. Raises ``VerificationError`` if a number differs by more than 1e-9 of
        its size, or does not follow, and ``RunError`` if there is no table.
        """
        tables, claim = self.tables or self._stored_tables(), self.claim
        try:
            proof = claim.prove(tables)
        except Refused as reason:
            raise VerificationError(f"the kernel cannot prove {reason}.") from None
        stated, proven = (
            [{"name": name, "means": [list(pair) for pair in means.items()]} for name, means in each.items()]
            for each in (claim.means, proof.means)
        )
        if different := differences(stated, proven, "quantities"):
            raise VerificationError(f"the kernel proves other numbers: {different[0]}.")
        quantities = tuple(
            replace(quantity, means=dict(proof.means[quantity.name])) for quantity in self.quantities
        )
        return replace(self, quantities=quantities, proof=proof, tables=tables)

    def quantity(self, name: str) -> Quantity:
        """Return the quantity of this name."""
        quantities = {quantity.name: quantity for quantity in self.quantities}
        require(name in quantities, "name", f"be one of {', '.join(quantities)}", repr(name))
        return quantities[name]

    def bound(self, rho: float, name: str = "error") -> float:
        """The proven upper bound within ρ of the population."""
        return self.quantity(name).high(checked_rho(rho))

    def lower(self, rho: float, name: str = "error") -> float:
        """The attained lower bound within ρ of the population, with the confidence."""
        return self.quantity(name).low(checked_rho(rho))

    def bracket(self, rho: float) -> SmoothedBracket:
        """Return all bounds at one ρ; raises ``ContradictionError`` if an attained side exceeds a proven
        one."""
        sides: dict[str, float] = {}
        for quantity in self.quantities:
            self._check(quantity, checked_rho(rho))
            sides[f"{quantity.name}_high"] = quantity.high(rho)
            if quantity.name != "ideal_vote":
                sides[f"{quantity.name}_low"] = quantity.low(rho)
        return SmoothedBracket(rho, math.sqrt(rho), **sides)

    def curve(self, rhos: Sequence[float] | None = None) -> list[SmoothedBracket]:
        """Return the brackets at several ρ; by default at the requested ones."""
        return [self.bracket(rho) for rho in (self.rhos if rhos is None else rhos)]

    def check(self, requirements: str | Requirement | Iterable[str | Requirement]) -> GateResult:
        """Judge requirements on "error", "loss" or "vote" (``certus.requirements``). All bounds are those of
        the population, with the confidence of the certificate, whether a requirement says so or not."""
        outcomes, evidence = [], f"{self.evidence}, confidence {self.confidence:g}"
        names = [quantity.name for quantity in self.quantities]
        for requirement in parsed(requirements):
            rule = f"judge one of {', '.join(names)} of a certificate by smoothing"
            require(requirement.quantity in names, "require", rule, repr(requirement.text))
            outcomes += [
                outcome(requirement, rho, self.bound(rho, requirement.quantity), evidence)
                for rho in (self.rhos if requirement.rho is None else [checked_rho(requirement.rho)])
            ]
        return GateResult(tuple(outcomes), (NOT_CHECKED,) if self.evidence is Evidence.STATED else ())

    @property
    def statement(self) -> str:
        """The statement of the certificate in words."""
        return (
            f"With probability at least {self.confidence:g} over {self.samples} independent draws and their "
            f"noise, all of these bounds hold for all rho at once, around the distribution that the samples "
            f"were drawn from, for the model with Gaussian noise of sigma {self.sigma:g} on its inputs."
            f"{'' if self.label_price is None else f' Labels change at the price {self.label_price:g}.'}"
            f" Premises: {'; '.join(PREMISES)}."
            f"{repeat_words(self.repeats, self.samples)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of the certificate as JSON with its checksum."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_JSON}
        content = plain | {
            "schema_version": SCHEMA,
            "kind": "smoothing",
            "evidence": str(self.evidence),
            "statement": self.statement,
            "premises": list(PREMISES),
            "quantities": [
                asdict(entry)
                | {"means": [{"gamma": gamma, "mean": mean} for gamma, mean in entry.means.items()]}
                for entry in self.quantities
            ],
            "brackets": [asdict(entry) for entry in self.curve()],
        }
        return add_checksum(content)

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, and its table beside it with the suffix ``.safetensors``."""
        if self.table is not None:
            tables = self.tables or self._stored_tables()
            save_tensors(Path(path).with_suffix(TABLE_SUFFIX), table_tensors(tables))
        write_json(Path(path), self.as_json())

    def _stored_tables(self) -> dict[str, SmoothedTable]:
        if self.source is None or self.table is None:
            raise RunError("A certificate without its table cannot be checked.")
        tensors, _ = load_tensors(self.source)
        if digest(tensors) != self.table:
            raise CorruptFileError(f"{self.source} is not the table that was written with the certificate.")
        try:
            return {quantity.name: _table(quantity.name, tensors) for quantity in self.quantities}
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, CertusError) as reason:
            line = " ".join(str(reason).split()) or type(reason).__name__
            raise CorruptFileError(f"{self.source} is corrupt: {line}") from None

    @staticmethod
    def load(path: str | Path) -> SmoothedCertificate:
        """Read a certificate that ``save`` wrote; its bounds are stated until ``verify`` has checked them."""
        content = read_json(Path(path))
        if not isinstance(content, dict) or content.get("kind") != "smoothing":
            raise RunError(f"{path} is not a certificate by smoothing.")
        if (version := content.get("schema_version")) != SCHEMA or isinstance(version, bool):
            raise RunError(f"{path} is of another version of certus: certify again.")
        content = verify_checksum(content, path)
        try:
            return replace(_read(content), source=Path(path).with_suffix(TABLE_SUFFIX))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, CertusError) as reason:
            line = " ".join(str(reason).split()) or type(reason).__name__
            raise CorruptFileError(f"{path} is corrupt: {line}") from None

    def _check(self, quantity: Quantity, rho: float) -> None:
        low, high = quantity.low(rho), quantity.high(rho)
        if not low <= high:
            raise contradiction(
                f"at rho = {rho:.6g} the population's {quantity.name} is at least {low!r} and at most "
                f"{high!r}, with confidence {self.confidence:g}: the confidence failed, the samples were not "
                "drawn independently, or the model answers differently when it is asked again",
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
    """Types of nested entries; ``SmoothedCertificate`` checks those of plain fields."""

    rhos: list[NonNegative]
    quantities: list[_Quantity]
    brackets: list[SmoothedBracket]
    clip: float | None
    table: Sha256 | None
    label_price: Positive | None
    evidence: Literal["proven", "stated"]


def _read(content: dict[str, Any]) -> SmoothedCertificate:
    quantities = []
    for entry in convert(content, _SmoothedFile).quantities:
        means = {pair.gamma: pair.mean for pair in entry.means}
        moves = tuple(Move(move.cost, move.loss) for move in entry.moves)
        quantities.append(Quantity(entry.name, entry.ceiling, means, entry.start, moves))
    stored = {each.name: content[each.name] for each in fields(SmoothedCertificate) if each.name in content}
    stored |= {"rhos": tuple(content["rhos"]), "quantities": tuple(quantities)}
    certificate = SmoothedCertificate(**stored)
    follows = certificate.as_json()
    for name in ("brackets", "statement", "premises"):
        if content[name] != follows[name]:
            raise ArgumentError(f"its {name} does not follow from the rest.")
    return certificate


TABLE_SUFFIX = ".safetensors"
_COLUMNS = 11  # γ, share, slope, claim; first, last and number of scores and of stations; number of edges


def table_tensors(tables: Mapping[str, SmoothedTable]) -> dict[str, Tensor]:
    """Return tables as tensors: counts as small integers, losses as the kernel uses them, equally spaced
    grids by their ends."""
    tensors: dict[str, Tensor] = {}
    for name, table in tables.items():
        loss = table.errors.is_floating_point()
        tensors["losses" if loss else "errors"] = table.errors if loss else table.errors.to(torch.int16)
        rows = []
        for design, claim in zip(table.designs, table.claims, strict=True):
            ends = [(*grid[[0, -1]], len(grid)) if len(grid) else (0, 0, 0) for grid in design.grids[:2]]
            rows.append([design.gamma, design.share, design.slope, claim, *ends[0], *ends[1]])
            rows[-1].append(len(design.grids[2]))
        tensors[f"{name}.designs"] = torch.tensor(rows, dtype=torch.float64)
        coefficients = np.stack([design.coefficients for design in table.designs])
        tensors[f"{name}.coefficients"] = torch.from_numpy(coefficients)
        tensors[f"{name}.edges"] = torch.from_numpy(
            np.concatenate([design.grids[2] for design in table.designs])
        )
    return tensors


def _table(name: str, tensors: Mapping[str, Tensor]) -> SmoothedTable:
    """Return the table of one quantity from tensors."""
    errors = tensors["losses" if name == "loss" else "errors"]
    rows, coefficients, edges = (tensors[f"{name}.{part}"] for part in ("designs", "coefficients", "edges"))
    for tensor, dimensions in ((rows, 2), (coefficients, 2), (edges, 1)):
        valid = tensor.dtype == torch.float64 and tensor.dim() == dimensions and bool(tensor.isfinite().all())
        rule = f"be finite numbers of float64 in {dimensions} dimensions"
        require(valid, name, rule, f"{tensor.dtype} of shape {tuple(tensor.shape)}")
    require(rows.shape[1] == _COLUMNS, "designs", f"have {_COLUMNS} columns", rows.shape[1])
    require(len(coefficients) == len(rows), "coefficients", f"have {len(rows)} rows", len(coefficients))
    designs, start = [], 0
    for row, values in zip(rows.tolist(), coefficients.numpy(), strict=True):
        counts = (row[6], row[9], row[10])
        valid = all(count.is_integer() and 0 <= count <= _MOST_POINTS for count in counts)
        require(valid, "designs", f"have grids of at most {_MOST_POINTS} points", counts)
        scores, stations = (np.linspace(row[at], row[at + 1], int(row[at + 2])) for at in (4, 7))
        grids = scores, stations, edges[start : start + int(row[10])].numpy()
        designs.append(GammaDesign(row[0], values, row[1], row[2], grids))
        start += int(row[10])
    require(start == len(edges), "edges", f"be {start} in all", len(edges))
    return SmoothedTable(errors, designs, rows[:, 3].tolist())
