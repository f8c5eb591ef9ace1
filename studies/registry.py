"""All studies by name: those of the paper in its order, then those beyond it."""

from __future__ import annotations

from certus.errors import require
from studies import (
    certified_accuracy,
    certified_training,
    convergence,
    generalization,
    hardness,
    lipschitz,
    monitoring,
    next_year,
    smoothing,
    trees,
)
from studies.cartpole import deep, gammas, pendulum, schedules
from studies.cartpole import study as cartpole
from studies.dogs import study as dogs
from studies.mnist import bounds, cost, gamma, large_budget, small_budget, sup_norm
from studies.study import Study
from studies.toy import study as toy

STUDIES = {
    study.name: study
    for study in (
        toy.STUDY,
        small_budget.STUDY,
        gamma.STUDY,
        large_budget.STUDY,
        sup_norm.STUDY,
        sup_norm.PROX_STUDY,
        bounds.STUDY,
        dogs.STUDY,
        cost.STUDY,
        cartpole.STUDY,
        convergence.STUDY,
        hardness.STUDY,
        generalization.STUDY,
        certified_training.STUDY,
        certified_accuracy.STUDY,
        lipschitz.STUDY,
        smoothing.STUDY,
        next_year.STUDY,
        trees.STUDY,
        monitoring.STUDY,
        gammas.STUDY,
        schedules.STUDY,
        deep.STUDY,
        pendulum.STUDY,
    )
}


def select_studies(name: str) -> list[Study]:
    """Return the study of this name; ``all`` are those of the paper, ``beyond`` the others."""
    groups = {"all": False, "beyond": True}
    if name in groups:
        return [study for study in STUDIES.values() if study.beyond == groups[name]]
    names = ", ".join((*groups, *STUDIES))
    require(name in STUDIES, "NAME", f"be one of {names}", repr(name))
    return [STUDIES[name]]
