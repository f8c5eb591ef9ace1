"""Costs that forbid moves outside chosen coordinates: features, or a patch of an image.

    c(z, z₀) = c_inner(z, z₀)  if zᵢ = z₀ᵢ wherever the mask is False,  ∞ otherwise

The paper's remark after thm:convergence; an ∞ on the labels (eqn:supervised-cost) is the same idea.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from certus._tensor import check_broadcast
from certus.costs.base import AttackBall, Cost, Response, Support
from certus.costs.quadratic import Mahalanobis
from certus.domains import Box, Domain, Intervals, Unbounded
from certus.errors import UnsupportedError, require
from certus.kernel import costs as kernel_costs
from certus.norms import Norm


@dataclass(frozen=True, eq=False)
class Masked(Cost):
    """``inner`` where the mask is True; elsewhere a point stays equal to z₀, bit for bit.

    Args:
        inner: any cost but another mask.
        mask: bool tensor that broadcasts to the shape of one point; True marks what may move.

    >>> from certus.costs.quadratic import SquaredL2
    >>> cost = Masked(SquaredL2(), torch.tensor([True, False]))
    >>> cost(torch.tensor([[3.0, 0.0], [3.0, 1.0]]), torch.zeros(2, 2))
    tensor([9., inf])
    """

    inner: Cost
    mask: Tensor
    _cache: dict[str, Cost] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        require(isinstance(self.inner, Cost), "inner", "be a Cost, such as SquaredL2()", self.inner)
        kind = self.mask.dtype if isinstance(self.mask, Tensor) else type(self.mask)
        require(kind == torch.bool, "mask", "be a bool tensor (True = may move)", kind)
        require(bool(self.mask.any()), "mask", "let at least one coordinate move", "all False")
        require(not isinstance(self.inner, Masked), "inner", "not be masked itself", self.inner)

    @property
    def norm(self) -> Norm:
        return self.inner.norm

    @property
    def growth(self) -> float:
        return self.inner.growth

    @property
    def strong_convexity(self) -> float:
        return self.inner.strong_convexity

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        strayed = ((moved != origin) & ~self.mask.to(moved.device)).flatten(1).any(1)
        return torch.where(strayed, torch.inf, self.inner.value(moved, origin))

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return self.free_part(self.inner.gradient(moved, origin))

    def support(self, domain: Domain) -> Support:
        if not isinstance(domain, Intervals):
            raise UnsupportedError(
                f"`domain` must be Unbounded or a Box for a Masked cost; got {type(domain).__name__}, whose "
                "projection would move frozen coordinates."
            )
        return self.inner.support(domain)

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        cut = self._cut(origin, domain)
        if isinstance(self.inner, Mahalanobis) and isinstance(domain, Unbounded):
            # On the free coordinates the closed form holds for their block of the matrix.
            response = self._uncoupled(point).respond(self.free_part(slope), point, origin, gamma, domain)
            return Response(cut.project(response.target), response.gain)
        return self.inner.respond(self.free_part(slope), point, origin, gamma, cut)

    def has_prox(self, domain: Domain) -> bool:
        return self.inner.has_prox(domain) and isinstance(domain, Intervals)

    def prox(self, point: Tensor, origin: Tensor, weight: Tensor, domain: Domain) -> Tensor:
        if not self.has_prox(domain):
            return self.inner.prox(point, origin, weight, domain)  # which says why not
        return self.inner.prox(self.restore_frozen(point, origin), origin, weight, self._cut(origin, domain))

    def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
        return self._uncoupled(point).gap(self.free_part(gradient), point, modulus, self._cut(point, domain))

    def estimated_gap(
        self, gain: Tensor, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Tensor:
        free, cut = self.free_part(slope), self._cut(origin, domain)
        return self._uncoupled(point).estimated_gap(gain, free, point, origin, gamma, cut)

    def whiten(self, vectors: Tensor) -> Tensor:
        return self.free_part(self._uncoupled(vectors).whiten(self.free_part(vectors)))

    def _uncoupled(self, points: Tensor) -> Cost:
        """The inner cost without coupling to frozen coordinates; equal to it for moves of free ones."""
        if not isinstance(self.inner, Mahalanobis):
            return self.inner
        if "uncoupled" not in self._cache:
            mask = self.mask.to(points.device).expand(points.shape[1:]).flatten()
            self._cache["uncoupled"] = self.inner.uncoupled(mask)
        return self._cache["uncoupled"]

    def check_shape(self, points: Tensor) -> None:
        check_broadcast("mask", self.mask, points)
        self.inner.check_shape(points)

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        mask = self.mask.cpu().expand(shape)
        return self.inner.kernel(shape, mask if free is None else mask & free)

    def attack_ball(self, domain: Domain) -> AttackBall:
        return replace(self.inner.attack_ball(domain), own=False)

    def fraction(self, share: Tensor) -> Tensor:
        return self.inner.fraction(share)

    @property
    def unmasked(self) -> Cost:
        return self.inner

    @property
    def finite(self) -> bool:
        return False

    def free_part(self, vectors: Tensor) -> Tensor:
        return torch.where(self.mask.to(vectors.device), vectors, 0)

    def restore_frozen(self, points: Tensor, origin: Tensor) -> Tensor:
        return torch.where(self.mask.to(points.device), points, origin)

    def _cut(self, fixed: Tensor, domain: Domain) -> Box:
        """Return Z restricted to the points that agree with ``fixed`` outside the mask, which is a box."""
        assert isinstance(domain, Intervals)  # ``support`` refuses the rest
        mask = self.mask.to(fixed.device)
        lower, upper = domain.bounds(fixed)
        return Box(torch.where(mask, lower, fixed), torch.where(mask, upper, fixed))


def masked_to(cost: Cost, mask: Tensor) -> Cost | None:
    """The cost with free coordinates restricted to a mask; None if none is left.

    >>> from certus.costs.quadratic import SquaredL2
    >>> masked_to(Masked(SquaredL2(), torch.tensor([True, False])), torch.tensor([False, True])) is None
    True
    """
    free = cost.mask & mask if isinstance(cost, Masked) else mask
    return Masked(cost.unmasked, free) if bool(free.any()) else None


def feature_mask(count: int, free: Iterable[int]) -> Tensor:
    """Mask of ``count`` features in which only those in ``free`` may move.

    >>> feature_mask(4, free=[0, 2])
    tensor([ True, False,  True, False])
    """
    chosen = list(free)
    valid = all(isinstance(index, int) and 0 <= index < count for index in chosen)
    require(valid, "free", f"hold indices from 0 to {count - 1}", chosen)
    mask = torch.zeros(count, dtype=torch.bool)
    mask[chosen] = True
    return mask


def patch_mask(height: int, width: int, rows: slice, columns: slice) -> Tensor:
    """Mask of an image in which only the patch ``[rows, columns]`` may move, in every channel.

    >>> patch_mask(2, 3, slice(0, 1), slice(1, 3)).int()
    tensor([[0, 1, 1],
            [0, 0, 0]], dtype=torch.int32)
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    mask[rows, columns] = True
    meets = bool(mask.any())
    require(meets, "rows` and `columns", f"meet the {height} × {width} image", f"{rows}, {columns}")
    return mask
