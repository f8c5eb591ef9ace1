"""Robust Markov decision processes: Q-learning that survives other physics (sec:cartpole).

Each transition of the environment is moved by an adversary who pays γ times the transport cost
(eqn:qlearningthing). Result types, warnings and rarely used options are in the modules.
"""

from certus.mdp.cartpole import CartPole, make_cartpole, make_cartpoles, variations
from certus.mdp.deep import DeepQLearning
from certus.mdp.policies import Covering, episode_lengths, episode_rewards, load_policy
from certus.mdp.robust import robust_optimum, worst_case_values
from certus.mdp.tabular import TabularQLearning, cartpole_learner, fit_cartpole
from certus.mdp.transition import AngleReward, RobustTransition

__all__ = [
    "AngleReward",
    "CartPole",
    "Covering",
    "DeepQLearning",
    "RobustTransition",
    "TabularQLearning",
    "cartpole_learner",
    "episode_lengths",
    "episode_rewards",
    "fit_cartpole",
    "load_policy",
    "make_cartpole",
    "make_cartpoles",
    "robust_optimum",
    "variations",
    "worst_case_values",
]
