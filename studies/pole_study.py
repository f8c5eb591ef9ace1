"""The paper's table of seven cart-poles, and trials of policies on all of them (sec:cartpole)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.evaluation import Trials, run_trials
from certus.mdp.policies import Policy

NOMINAL, ROBUST = "nominal", "robust"

PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "original": ((399.7, 0.1), (400.0, 0.0)),
    "light": ((400.0, 0.0), (400.0, 0.0)),
    "long": ((400.0, 0.0), (400.0, 0.0)),
    "soft g": ((400.0, 0.0), (400.0, 0.0)),
    "heavy": ((150.1, 4.7), (334.0, 3.7)),
    "short": ((245.2, 4.8), (400.0, 0.0)),
    "strong g": ((189.8, 2.3), (398.5, 0.3)),
}
"""The paper's table: episode length, mean and standard error over 1,000 trials, nominal and robust."""

PENALTY = 50.0
"""The γ of the robust agents, chosen by trying some on the seven systems."""


def try_out(
    policies: Sequence[Policy], system: CartPole = ORIGINAL, trials: int = 1000
) -> dict[str, list[Trials]]:
    """The trials of each policy on each of the seven systems; policy k meets those of seed k."""
    return {
        name: [run_trials(policy, changed, trials=trials, seed=seed) for seed, policy in enumerate(policies)]
        for name, changed in variations(system).items()
    }


def mean_lengths(tried: Mapping[str, Sequence[Trials]]) -> dict[str, list[float]]:
    """The mean episode length of each policy, by system."""
    return {system: [float(one.lengths.mean()) for one in runs] for system, runs in tried.items()}
