"""Robust Markov decision processes: Q-learning that survives other physics (sec:cartpole).

Each transition of the environment is moved by an adversary who pays γ times the transport cost
(eqn:qlearningthing).
"""

from certus.mdp._compiled import UncompiledWarning
from certus.mdp.cartpole import CartPole, variations
from certus.mdp.deep import DeepQLearning
from certus.mdp.environments import discretize_action, make_cartpole, make_cartpoles
from certus.mdp.evaluation import Trials, episode_lengths, episode_rewards, estimate_mean, run_trials
from certus.mdp.fast import cartpole_learner, fit_cartpole
from certus.mdp.policies import Covering, DeepPolicy, Policy, TabularPolicy, load_policy
from certus.mdp.rewards import AngleReward, Reward
from certus.mdp.robust import (
    RobustOptimum,
    cartpole_optimum,
    cartpole_worst_case,
    robust_optimum,
    worst_case_values,
)
from certus.mdp.tabular import Decay, Landing, TabularQLearning, Training
from certus.mdp.transition import RobustTransition, WeakPenaltyWarning

__all__ = [
    "AngleReward",
    "CartPole",
    "Covering",
    "Decay",
    "DeepPolicy",
    "DeepQLearning",
    "Landing",
    "Policy",
    "Reward",
    "RobustOptimum",
    "RobustTransition",
    "TabularPolicy",
    "TabularQLearning",
    "Training",
    "Trials",
    "UncompiledWarning",
    "WeakPenaltyWarning",
    "cartpole_learner",
    "cartpole_optimum",
    "cartpole_worst_case",
    "discretize_action",
    "episode_lengths",
    "episode_rewards",
    "estimate_mean",
    "fit_cartpole",
    "load_policy",
    "make_cartpole",
    "make_cartpoles",
    "robust_optimum",
    "run_trials",
    "variations",
    "worst_case_values",
]
