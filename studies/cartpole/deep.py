"""Deep Q-learning on cart-pole, nominal and robust with the Q-term (eqn:qlearningthing), on seven systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certus.mdp.cartpole import make_cartpoles, variations
from certus.mdp.deep import DeepQLearning
from certus.mdp.policies import episode_lengths
from certus.mdp.transition import AngleReward
from studies.cartpole.pairs import NOMINAL, ROBUST, AgentPair, pair_figure, pair_table, pair_verdict
from studies.study import Measured, Part, Picture, Scale, Study, Verdict
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCALES = (2.4, 2.0, 0.4, 2.0)  # of position, speed, angle and rate


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train one pair of agents, and measure both on all systems."""
    seed, agents = settings["seed"], {}
    for agent, gamma in ((NOMINAL, None), (ROBUST, settings["gamma"])):
        learner = DeepQLearning(AngleReward(2), _SCALES, gamma, steps=settings["steps"])
        trained = learner.fit(make_cartpoles(settings["environments"]), seed)
        agents[agent] = {
            "lengths": {
                name: float(
                    episode_lengths(trained.policy, system, trials=settings["trials"], seed=seed).mean()
                )
                for name, system in variations().items()
            },
            "episodes": len(trained.lengths),
            "mean training length": float(trained.lengths.mean()),
            "rho_hat": float(trained.transport[-1000:].mean()),
        }
    return agents


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    size = {"steps": 600 if quick else 6000, "environments": 16, "trials": 50 if quick else 1000}
    return [
        Part(f"seed-{seed}", {"seed": seed, "gamma": 3e4, **size}, _measure, packages=("gymnasium",))
        for seed in range(2 if quick else 5)
    ]


def _pairs(measured: Measured) -> Sequence[AgentPair]:
    return [{agent: result["lengths"] for agent, result in agents.items()} for agents in measured.values()]


def _draw(measured: Measured) -> Figure:
    return pair_figure(_pairs(measured), "episode length (at most 400)")


def _verdicts(measured: Measured) -> list[Verdict]:
    claim = "Does a deep Q-network that sees position and speed gain from the perturbation with the Q-term?"
    return [pair_verdict(_pairs(measured), claim, 1)]


def _text(measured: Measured) -> str:
    return f"{pair_table(_pairs(measured), 1)}\n\nEpisode length, ± the standard error over the seeds."


STUDY = Study(
    name="cartpole-deep",
    title="Cart-pole by deep Q-learning, nominal and robust",
    labels=("sec:cartpole",),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 10},
    parts=_parts,
    pictures=(Picture("systems", "Episode lengths of both kinds of agents, ± the standard error.", _draw),),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "Two agents of each kind, 600 steps of training instead of 6,000, 50 trials."},
    beyond=True,
)
