"""What a cost, a norm or a domain of the user's claims: named as assumptions, and tried on first use.

Bounds rest on two numbers of a cost, its growth and its strong convexity, on its norm with its dual, and on
the projection of a domain. For the classes of certus these are theorems. For anybody else's, subclasses of
ours included, and for the modulus of a ``Bregman`` cost, they are claims. Whatever rests on them is
*assumed*, by name, and points that refute them are looked for before they are used.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import Tensor

from certus.batches import widened
from certus.costs.base import Cost
from certus.costs.bregman import Bregman
from certus.costs.domain_trials import try_domain
from certus.costs.lp import SquaredLp, SquaredSup
from certus.costs.masked import Masked
from certus.costs.norm_trials import try_norm
from certus.costs.quadratic import Mahalanobis, SquaredL2, WeightedL2
from certus.costs.trials import try_cost
from certus.domains import Ball, Box, Domain, Unbounded
from certus.errors import UnsupportedError
from certus.norms import DiagonalNorm, Lp, MatrixNorm, Norm

_COSTS = (SquaredL2, WeightedL2, Mahalanobis, SquaredLp, SquaredSup)
_NORMS = (Lp, DiagonalNorm, MatrixNorm)
_DOMAINS = (Unbounded, Box, Ball)
_EVERYWHERE = Unbounded()
_PASSED: WeakValueDictionary[tuple[object, ...], Cost | Domain] = WeakValueDictionary()


def is_own(cost: Cost) -> bool:
    """Whether everything that the cost says of itself was derived by certus; for a mask, its inner cost."""
    return type(cost.inner if type(cost) is Masked else cost) in _COSTS


def cost_assumptions(cost: Cost) -> tuple[str, ...]:
    """What a bound assumes that rests on this cost, by name."""
    if is_own(cost):
        return ()
    inner = cost.inner if type(cost) is Masked else cost
    kind = type(inner).__name__
    named = f"growth and strong convexity of {kind}"
    if isinstance(inner, Bregman) and type(inner) is Bregman:
        named = f"the modulus {inner.modulus!r} of Bregman"
    return (named, *_norm_assumptions(inner.norm, kind))


def _norm_assumptions(norm: Norm, kind: str) -> tuple[str, ...]:
    return () if type(norm) in _NORMS else (f"the norm {type(norm).__name__} of {kind}",)


def domain_assumptions(domain: Domain) -> tuple[str, ...]:
    """The same of a domain."""
    return () if type(domain) in _DOMAINS else (f"the domain {type(domain).__name__}",)


def check_claims(cost: Cost, domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if points of Z around these (batch, …) inputs refute a claim of the user's cost or
    domain. Each is tried once for inputs of one shape and precision; a cost in float64, if it takes that: the
    rounding of float32 would hide an error of a percent."""
    setting = (tuple(inputs.shape[1:]), inputs.dtype)
    if domain_assumptions(domain) and _PASSED.get((id(domain), *setting)) is not domain:
        try_domain(domain, inputs)
        _PASSED[(id(domain), *setting)] = domain
    if not cost_assumptions(cost) or _PASSED.get((id(cost), id(domain), *setting)) is cost:
        return
    inner, points = cost.unmasked, _precise_points(cost, domain, inputs.detach())
    if _norm_assumptions(inner.norm, ""):
        try_norm(inner.norm, points)
    try_cost(cost, domain, points, derived=type(inner) is Bregman)
    _PASSED[(id(cost), id(domain), *setting)] = cost


def _precise_points(cost: Cost, domain: Domain, inputs: Tensor) -> Tensor:
    """The inputs in float64 on the CPU, or as they are where the cost computes with nothing else."""
    points = widened(inputs)
    try:
        values = cost.value(domain.project(points), points), cost.norm(points)
    except (RuntimeError, TypeError):  # it holds tensors of another precision, or on another device
        return inputs
    return points if all(each.dtype == torch.float64 for each in values) else inputs


def check_claims_everywhere(cost: Cost, shape: tuple[int, ...]) -> None:
    """The same at random points of one shape, for a cost of the user's that is one for all of space. A
    potential may be one for a domain, and is tried where that and the data are known."""
    if is_own(cost) or isinstance(cost.unmasked, Bregman):
        return
    try:
        cost.support(_EVERYWHERE)
    except UnsupportedError:
        return
    points = torch.randn(8, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_claims(cost, _EVERYWHERE, points)
