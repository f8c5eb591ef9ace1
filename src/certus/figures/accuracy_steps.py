"""Where certified accuracy falls: at the radii of its certificate, which a grid of distances would miss."""

from __future__ import annotations

import math

from certus.certificates import Certificate

_GRID = 48
_MOST = 200  # steps are smaller than a picture shows
_BESIDE = 1e-6


def step_places(certificate: Certificate, far: float) -> list[float]:
    """Distances up to ``far``: a grid, the ε asked for, and both sides of the radii proven and found.

    Both accuracies fall with the distance. So between two places, the value at the farther one is proven and
    that at the nearer one attained, whichever places are left out.
    """
    places = {*certificate.epsilons, *(far * step / _GRID for step in range(_GRID + 1))}
    for costs in (certificate.error_floor, certificate.error_found):
        if costs is not None:
            radii = {math.sqrt(max(cost, 0.0) / certificate.unit_price) for cost in costs.tolist()}
            inside = sorted(radius for radius in radii if 0 < radius < far)
            for radius in inside[:: len(inside) // _MOST + 1]:
                places |= {radius * (1 - _BESIDE), min(radius * (1 + _BESIDE), far)}
    return sorted(places)
