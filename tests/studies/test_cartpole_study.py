"""What agents of cart-pole show, and how they are filmed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from certus.mdp import cartpole_learner, episode_lengths, fit_cartpole, load_policy, variations
from studies.cartpole.pairs import PAPER, PENALTY, animate, mean_lengths, try_out
from studies.cartpole.study import STUDY
from tests.studies.test_cartpole_agents import small


def test_robust_agents_survive_other_physics(tmp_path: Path) -> None:
    """As a quick look measures it: three pairs of agents, 100 trials each."""
    measured = small(STUDY, tmp_path, "seed-", grid_trials=1).values()
    gains = {
        system: np.mean(
            [one["robust"]["lengths"][system] - one["nominal"]["lengths"][system] for one in measured]
        )
        for system in PAPER
    }
    assert len(measured) == 3
    assert min(gains.values()) >= -1
    assert gains["short"] > 20
    assert gains["strong g"] > 20
    assert np.mean([np.subtract(one["robust"]["curve"], one["nominal"]["curve"]) for one in measured]) > 0


def test_saved_agents_reload_and_repeat_their_trials(tmp_path: Path) -> None:
    policies = [fit_cartpole(cartpole_learner(PENALTY, episodes=300), seed).policy for seed in range(2)]
    lengths = mean_lengths(try_out(policies, trials=50))
    for seed, policy in enumerate(policies):
        policy.save(tmp_path / f"{seed}.safetensors")
        loaded = load_policy(tmp_path / f"{seed}.safetensors")
        for system, changed in variations().items():
            again = episode_lengths(loaded, changed, trials=50, seed=seed).mean()
            assert again == lengths[system][seed]


class Push:
    """A policy that always pushes one way, and lets the pole fall."""

    def actions(self, observations: np.ndarray) -> np.ndarray:
        return np.ones(len(observations), dtype=np.int64)

    def save(self, path: str | Path) -> None: ...


def test_an_animation_moves_and_says_how_it_ended(drawn: list[Figure], tmp_path: Path) -> None:
    slow = variations()["original"]._replace(interval=0.1)  # few frames
    animate({"one": Push(), "two": Push()}, slow, tmp_path / "both.gif", steps=6)
    with Image.open(tmp_path / "both.gif") as pictures:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(pictures)]
    half = frames[0].shape[1] // 2
    for side in (slice(None, half), slice(half, None)):
        assert (frames[0][:, side] != frames[1][:, side]).any(2).sum() > 20
    ends = [axes.get_title() for axes in drawn[-1].axes]
    assert ends == ["one: fell after 3 steps", "two: fell after 3 steps"]
