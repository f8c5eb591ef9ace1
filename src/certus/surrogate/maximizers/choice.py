"""Which maximiser goes best with a cost and a domain."""

from __future__ import annotations

from certus.costs import Cost
from certus.domains import Domain, Unbounded
from certus.surrogate.maximizers.barzilai_borwein import BarzilaiBorwein
from certus.surrogate.maximizers.monotone import MonotoneAscent
from certus.surrogate.maximizers.proximal_ascent import ProximalAscent

_EVERYWHERE = Unbounded()


def default_maximizer(
    cost: Cost,
    domain: Domain = _EVERYWHERE,
    *,
    tolerance: float = MonotoneAscent.tolerance,
    max_gradients: int = MonotoneAscent.max_gradients,
) -> MonotoneAscent:
    """``ProximalAscent`` where the cost has a proximal step on the domain, else ``BarzilaiBorwein``.

    >>> from certus.costs import SquaredL2, SquaredSup
    >>> default_maximizer(SquaredSup()), default_maximizer(SquaredL2())
    (ProximalAscent(tolerance=0.005, max_gradients=8), BarzilaiBorwein(tolerance=0.005, max_gradients=8))
    """
    # What is not a Cost at all is refused later, where it is used.
    proximal = isinstance(cost, Cost) and cost.has_prox(domain)
    kind = ProximalAscent if proximal else BarzilaiBorwein
    return kind(tolerance, max_gradients)
