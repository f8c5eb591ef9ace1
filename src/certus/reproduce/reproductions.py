"""All reproductions by name, in the paper's order."""

from __future__ import annotations

from certus.errors import require
from certus.reproduce import (
    convergence,
    dogs,
    generalization,
    hardness,
    mnist_bounds,
    mnist_gamma,
    mnist_inf,
    mnist_large,
    mnist_methods,
    mnist_prox,
    pole_agents,
    toy,
    training_cost,
)
from certus.reproduce.reproduction import Reproduction

REPRODUCTIONS = {
    of.name: of
    for of in (
        toy.REPRODUCTION,
        mnist_methods.REPRODUCTION,
        mnist_gamma.REPRODUCTION,
        mnist_large.REPRODUCTION,
        mnist_inf.REPRODUCTION,
        mnist_prox.REPRODUCTION,
        mnist_bounds.REPRODUCTION,
        dogs.REPRODUCTION,
        training_cost.REPRODUCTION,
        pole_agents.REPRODUCTION,
        convergence.REPRODUCTION,
        hardness.REPRODUCTION,
        generalization.REPRODUCTION,
    )
}


def reproduction(name: str) -> Reproduction:
    """The one of this name."""
    require(name in REPRODUCTIONS, "NAME", f"be all, or one of {', '.join(REPRODUCTIONS)}", repr(name))
    return REPRODUCTIONS[name]
