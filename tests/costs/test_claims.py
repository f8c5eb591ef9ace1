"""Costs, norms and domains of the user's: assumed by name, and refused where points refute them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

import certus
from certus import WRM, Box, SquaredL2
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.costs.claims import check_claims, cost_assumptions, domain_assumptions
from certus.domains import Ball, Domain, Unbounded
from certus.errors import ClaimError
from certus.norms import L2, DiagonalNorm, Lp
from tests.problems import SHARP_COSTS, SMOOTH_COSTS

INPUTS = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PLANE = INPUTS[:, :2]
POSITIVE = INPUTS.abs().clamp(1e-3, 1)
EVERYWHERE = Unbounded()
CPU = Fabric(accelerator="cpu", devices=1)


def squares(z: Tensor) -> Tensor:
    return (z**2).flatten(1).sum(1)


def entropy(z: Tensor) -> Tensor:
    return (z * z.log()).flatten(1).sum(1)


class Plain(SquaredL2):
    """Nothing is overridden, but whoever subclasses may do so at any time."""


class Tripled(SquaredL2):
    """3‖·‖₂²: right."""

    growth = strong_convexity = 6.0

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 3 * super().value(moved, origin)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 3 * super().gradient(moved, origin)


class Power(SquaredLp):
    pass


class Largest(SquaredSup):
    pass


class Entropy(Bregman):
    pass


class Euclid:
    """L2, written anew."""

    euclidean_floor = 1.0

    def __call__(self, vectors: Tensor) -> Tensor:
        lengths: Tensor = (vectors.flatten(1) ** 2).sum(1).sqrt()
        return lengths

    @property
    def dual(self) -> Euclid:
        return self


HALF = torch.tensor([True, True, False, True, False])

STANDING: dict[str, tuple[Cost, tuple[str, ...]]] = {
    "subclass": (Plain(), ("growth and strong convexity of Plain",)),
    "tripled": (Tripled(), ("growth and strong convexity of Tripled",)),
    "power": (Power(1.5), ("growth and strong convexity of Power",)),
    "sum": (Power(1.0), ("growth and strong convexity of Power",)),
    "largest": (Largest(), ("growth and strong convexity of Largest",)),
    "masked": (Masked(Tripled(), HALF), ("growth and strong convexity of Tripled",)),
    "bregman": (Bregman(squares, 2.0), ("the modulus 2.0 of Bregman",)),
    "weaker": (Bregman(squares, 0.5), ("the modulus 0.5 of Bregman",)),
    "bregman, masked": (Masked(Bregman(squares, 2.0), HALF), ("the modulus 2.0 of Bregman",)),
    "bregman, subclass": (Entropy(squares, 2.0), ("growth and strong convexity of Entropy",)),
    "norm": (Bregman(squares, 2.0, Euclid()), ("the modulus 2.0 of Bregman", "the norm Euclid of Bregman")),
}


@pytest.mark.parametrize(("cost", "names"), STANDING.values(), ids=STANDING.keys())
def test_unrefuted_claims_are_assumed_by_name(cost: Cost, names: tuple[str, ...]) -> None:
    check_claims(cost, EVERYWHERE, INPUTS)
    assert cost_assumptions(cost) == names


def test_our_own_are_theorems() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    own = [SquaredL2(), WeightedL2(torch.ones(5)), Mahalanobis(matrix), SquaredLp(1.5), SquaredSup()]
    for cost in (*own, *(Masked(cost, HALF) for cost in own)):
        assert cost_assumptions(cost) == ()
    assert not any(domain_assumptions(domain) for domain in (Unbounded(), Box(0, 1), Ball(0.0, 1.0)))


@pytest.mark.parametrize("plane", [*SMOOTH_COSTS, *SHARP_COSTS], ids=str)
def test_the_trial_passes_our_own_costs(plane: Any) -> None:
    """What is proven of ours must not be refuted: the trial itself is sound."""
    from certus.costs.claims import check_cost

    for inputs in (PLANE, PLANE.float(), 1e4 * PLANE, 1e-4 * PLANE):
        check_cost(plane.cost, EVERYWHERE, inputs, derived=False)


def test_a_modulus_may_hold_on_the_domain_only() -> None:
    cost = Bregman(entropy, 1.0)  # h'' = 1/z ≥ 1 for z ≤ 1
    check_claims(cost, Box(1e-3, 1.0), POSITIVE)
    with pytest.raises(ClaimError, match=r"Bregman is refuted: it claims .* 1, so that"):
        check_claims(cost, Box(1e-3, 3.0), POSITIVE)


def rotated(least: float) -> Bregman:
    """zᵀMz in 30 dimensions, all eigenvalues 1 but for one, in no direction that is easily guessed."""
    basis = torch.linalg.qr(
        torch.randn(30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).Q
    sizes = torch.ones(30, dtype=torch.float64)
    sizes[7] = least
    matrix = basis.T @ torch.diag(sizes) @ basis
    return Bregman(lambda z: ((z @ matrix) * z).sum(1), 2.0)


def test_the_weakest_direction_is_found() -> None:
    inputs = torch.randn(10, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    check_claims(rotated(1.0), EVERYWHERE, inputs)
    with pytest.raises(ClaimError, match="Bregman is refuted: it claims growth 2"):
        check_claims(rotated(0.9), EVERYWHERE, inputs)


class Grown(SquaredL2):
    growth = 2000.0


class Convex(SquaredL2):
    strong_convexity = 2.1


class Steep(SquaredL2):
    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 1.99 * (moved - origin)


class Sure(SquaredL2):
    def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
        return super().gap(gradient, point, modulus, domain) / 2


class Dear(SquaredL2):
    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        return super().value(moved, origin) + 1


class Flat(SquaredL2):
    """Grows like a logarithm far away: no modulus holds."""

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        return torch.log1p(super().value(moved, origin))

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return super().gradient(moved, origin) / (1 + super().value(moved, origin)).unsqueeze(1)


class Unknown(SquaredL2):
    growth = math.nan


class Hasty(Lp):
    """Its dual is half of what it should be."""

    @property
    def dual(self) -> DiagonalNorm:  # type: ignore[override]
        return DiagonalNorm(torch.tensor(0.25))


class High(Lp):
    euclidean_floor = 1.2


class Square:
    dual, euclidean_floor = L2, 0.0

    def __call__(self, vectors: Tensor) -> Tensor:
        return L2(vectors) ** 2


WRONG: dict[str, tuple[Cost, str]] = {
    "growth": (
        Grown(),
        r"Grown is refuted: it claims growth 2000, so that .* = .*; at \(.*\), moved from \(.*it is",
    ),
    "convexity": (Convex(), "Convex is refuted: it claims strong convexity 2.1, so that .* it is"),
    "gradient": (
        Steep(),
        "Steep is refuted: it claims a slope along a move of .*; at .* it is",
    ),
    "gap": (
        Sure(),
        "Sure is refuted: it claims by its gap a gain of at most .*; at .* it is",
    ),
    "zero": (Dear(), r"Dear is refuted: it claims c\(z, z\) = 0; at .* it is 1\.0"),
    "flat": (Flat(), "Flat is refuted: it claims growth 2, so that"),
    "nan": (Unknown(), "`growth` of Unknown must be a finite number, not negative; it is nan"),
    "modulus": (Bregman(squares, 2.001), "Bregman is refuted: it claims growth 2.001, so that"),
    "masked": (Masked(Bregman(squares, 2.1), HALF), "Bregman is refuted: it claims growth 2.1"),
    "quartic": (Bregman(lambda z: (z**4).sum(1), 1.0), "Bregman is refuted: it claims"),
    "dual": (
        Bregman(squares, 2.0, Hasty(2.0)),
        r"Hasty is refuted: it claims ⟨g, v⟩ ≤ ‖g‖_\*‖v‖; at a tested vector",
    ),
    "floor": (
        Bregman(squares, 0.1, High(1.5)),
        r"High is refuted: it claims ‖v‖ ≥ 1\.2‖v‖₂; at a tested vector",
    ),
    "no norm": (Bregman(squares, 0.1, Square()), "Square is refuted: it claims ‖−3v‖ = 3‖v‖"),
}


@pytest.mark.parametrize(("cost", "message"), WRONG.values(), ids=WRONG.keys())
def test_refuted_claims_are_refused(cost: Cost, message: str) -> None:
    with pytest.raises(ClaimError, match=message):
        check_claims(cost, EVERYWHERE, INPUTS)


def test_wherever_a_cost_is_first_used() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3)).double()
    loss, targets = certus.ModelLoss(model), torch.zeros(20, dtype=torch.long)
    with pytest.raises(ClaimError, match="Grown is refuted"):
        WRM(1.0, cost=Grown()).solve(loss, INPUTS, targets)
    with pytest.raises(ClaimError, match="Grown is refuted"):
        certus.certify(model, (INPUTS, targets), rho=0.1, cost=Grown())
    with pytest.raises(ClaimError, match="Convex is refuted"):
        certus.inner.largest_curvature(loss, INPUTS, targets, cost=Convex())
    with pytest.raises(ClaimError, match="Convex is refuted"):
        certus.input_smoothness(model, cost=Convex())
    with pytest.raises(ClaimError, match="Bregman is refuted"):
        WRM(1.0, cost=Bregman(squares, 2.5)).solve(loss, INPUTS.float(), targets)  # in float32, too


class Doubled(SquaredL2):
    """Its gradient is twice the true one, which float32 has digits enough to tell."""

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 4 * (moved - origin)


class Single(SquaredL2):
    """Computes with a matrix of float32 only."""

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        move = (moved - origin) @ torch.eye(5)
        return (move * move).sum(1)


class SingleDoubled(Single, Doubled):
    pass


@pytest.mark.parametrize(
    "cost",
    [Doubled(), SingleDoubled(), *(cost for cost, _ in WRONG.values())],
    ids=["doubled", "float32 only", *WRONG],
)
def test_wrm_refuses_in_float32_what_certify_refuses(cost: Cost) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3))
    targets = torch.zeros(20, dtype=torch.long)
    with pytest.raises(ClaimError):
        WRM(1.0, cost=cost)(certus.ModelLoss(model), INPUTS.float(), targets)
    with pytest.raises(ClaimError):
        certus.fit(
            model, (INPUTS.float(), targets), method=WRM(1.0, cost=cost), epochs=1, progress=False, fabric=CPU
        )


def test_wrm_tries_a_cost_once() -> None:
    class Counting(SquaredL2):
        """Counts calls that only a trial makes."""

        def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
            calls.append(tuple(point.shape))
            return super().gap(gradient, point, modulus, domain)

    calls: list[tuple[int, ...]] = []
    model, targets = torch.nn.Sequential(torch.nn.Linear(5, 3)), torch.zeros(20, dtype=torch.long)
    wrm, loss = WRM(1.0, cost=Counting()), certus.ModelLoss(model)
    wrm(loss, INPUTS.float(), targets)
    tried = len(calls)
    assert tried > 0
    certus.fit(model, (INPUTS.float(), targets), method=wrm, epochs=3, progress=False, fabric=CPU)
    assert len(calls) == tried
    WRM(1.0, cost=Single())(loss, INPUTS.float(), targets)  # right, and takes nothing but float32


def test_the_gap_of_a_solution_says_what_it_assumes() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3)).double()
    loss, targets = certus.ModelLoss(model), torch.zeros(20, dtype=torch.long)
    wrm = WRM(3.0, cost=Bregman(squares, 2.0))
    assert wrm.solve(loss, INPUTS, targets).assumptions == ()
    bounded = wrm.solve(loss, INPUTS, targets, curvature_bound=0.5)
    assert bounded.gap_evidence is certus.Evidence.ASSUMED
    assert bounded.assumptions == ("the curvature bound 0.5", "the modulus 2.0 of Bregman")
    own = WRM(3.0, domain=Room(-9.0, 9.0)).solve(loss, INPUTS, targets, curvature_bound=0.5)
    assert own.assumptions == ("the curvature bound 0.5", "the domain Room")


class Room(Box):
    """A box."""


class Halfspace(Domain):
    def project(self, points: Tensor) -> Tensor:
        return torch.cat([points[:, :1].clamp_min(0), points[:, 1:]], 1)

    def contains(self, points: Tensor) -> Tensor:
        return points[:, 0] >= 0


class Shrunk(Box):
    def project(self, points: Tensor) -> Tensor:
        return 0.999 * super().project(points)


class Sphere(Domain):
    """Not convex."""

    def project(self, points: Tensor) -> Tensor:
        return points / L2(points).unsqueeze(1)

    def contains(self, points: Tensor) -> Tensor:
        return (L2(points) - 1).abs() < 1e-9


class Slanted(Halfspace):
    """Moves sideways too: no projection."""

    def project(self, points: Tensor) -> Tensor:
        inside = super().project(points)
        return torch.cat([inside[:, :1], inside[:, 1:] + inside[:, :1] - points[:, :1]], 1)


class Open(Halfspace):
    def project(self, points: Tensor) -> Tensor:
        return points


class Wide(Box):
    def bounds(self, points: Tensor) -> tuple[Tensor, Tensor]:
        low, high = super().bounds(points)
        return low, high - 0.1

    def contains(self, points: Tensor) -> Tensor:
        return ((points >= 0) & (points <= 1)).all(1)


def test_domains() -> None:
    inside = INPUTS.abs().clamp(0, 1)
    for right in (Room(0.0, 1.0), Halfspace()):
        check_claims(SquaredL2(), right, inside)
        assert domain_assumptions(right) == (f"the domain {type(right).__name__}",)
    unit = INPUTS / INPUTS.norm(dim=1, keepdim=True)
    wrong: list[tuple[Domain, Tensor, str]] = [
        (Shrunk(0.0, 1.0), inside, "Shrunk is refuted: it claims Πz = z for z in Z"),
        (Sphere(), unit, "Sphere is refuted: it claims that it is convex"),
        (Slanted(), inside, "Slanted is refuted: it claims ⟨x − Πx, z − Πx⟩ ≤ 0"),
        (Open(), inside, "Open is refuted: the projection of .* is not in it"),
        (Wide(0.0, 1.0), inside, "Wide is refuted: it claims that its bounds are those of its projection"),
    ]
    for domain, inputs, message in wrong:
        with pytest.raises(ClaimError, match=message):
            check_claims(SquaredL2(), domain, inputs)
