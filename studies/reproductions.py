"""All reproductions by name: those of the paper in its order, then those beyond it."""

from __future__ import annotations

from certus.errors import require
from studies import (
    accuracy_study,
    certified_study,
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
    next_year,
    pendulum,
    pole_agents,
    pole_gammas,
    pole_networks,
    pole_schedules,
    smoothing_study,
    toy,
    training_cost,
)
from studies.reproduction import Reproduction

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
        certified_study.REPRODUCTION,
        accuracy_study.REPRODUCTION,
        smoothing_study.REPRODUCTION,
        next_year.REPRODUCTION,
        pole_gammas.REPRODUCTION,
        pole_schedules.REPRODUCTION,
        pole_networks.REPRODUCTION,
        pendulum.REPRODUCTION,
    )
}


def reproductions(name: str) -> list[Reproduction]:
    """The one of this name; ``all`` are those of the paper, ``beyond`` the others."""
    groups = {"all": False, "beyond": True}
    if name in groups:
        return [of for of in REPRODUCTIONS.values() if of.beyond == groups[name]]
    names = ", ".join((*groups, *REPRODUCTIONS))
    require(name in REPRODUCTIONS, "NAME", f"be one of {names}", repr(name))
    return [REPRODUCTIONS[name]]
