"""The simulator is gymnasium's cart-pole, whatever its masses, length and gravity."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from certus._compiled import UncompiledWarning, compiled
from certus.errors import ArgumentError, UnsupportedError
from certus.mdp import (
    CartPole,
    cartpole_learner,
    episode_lengths,
    fit_cartpole,
    make_cartpole,
    make_cartpoles,
    variations,
)
from certus.mdp.cartpole import advance, advance_fast, discretize_action, fallen, fallen_fast
from certus.mdp.policies import run_trials

SYSTEMS = variations()


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_step_of_every_episode_equals_gymnasiums(name: str) -> None:
    system, env = SYSTEMS[name], make_cartpole(SYSTEMS[name])
    bare: Any = env.unwrapped
    generator = np.random.default_rng(0)
    for episode in range(20):
        env.reset(seed=episode)
        over, steps = False, 0
        while not over:
            before, action = bare.state, int(generator.integers(2))
            _, _, ended, cut, _ = env.step(action)
            expected = np.array(bare.state)
            push = 2.0 * action - 1.0
            x, speed, angle, spin = before
            ours = np.array(advance(x, speed, angle, spin, push, system))
            fast = np.array(advance_fast(x, speed, angle, spin, push, system))
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
            np.testing.assert_allclose(fast, expected, rtol=0, atol=1e-12)
            assert bool(fallen(ours[0], ours[2], system)) == bool(ended)
            assert bool(fallen_fast(ours[0], ours[2], system)) == bool(ended)
            over, steps = bool(ended or cut), steps + 1
        assert steps <= 400


def test_physics_changes_what_gymnasium_has_cached() -> None:
    bare: Any = make_cartpole(CartPole().scaled(mass=2, length=0.5, gravity=5)).unwrapped
    assert bare.total_mass == pytest.approx(1.2)
    assert bare.polemass_length == pytest.approx(0.2 * 0.25)
    assert bare.gravity == pytest.approx(49.0)
    vector: Any = make_cartpoles(3, CartPole().scaled(mass=2)).unwrapped
    assert vector.total_mass == pytest.approx(1.2)


class Alternating:
    """Left, right, left, …: falls after a while, in gymnasium as in ours."""

    def __init__(self) -> None:
        self.step = 0

    def actions(self, observations: Any) -> Any:
        self.step += 1
        return np.full(len(observations), self.step % 2)

    def save(self, path: Any) -> None: ...


def test_episode_lengths_are_those_of_gymnasium() -> None:
    trials, system = 20, SYSTEMS["short"]
    ours = episode_lengths(Alternating(), system, trials=trials, seed=3)
    starts = np.random.default_rng(3).uniform(-0.05, 0.05, (4, trials))
    env = make_cartpole(system)
    for trial in range(trials):
        env.reset(seed=0)
        bare: Any = env.unwrapped
        bare.state = starts[:, trial]
        policy, steps, over = Alternating(), 0, False
        while not over:
            _, _, ended, cut, _ = env.step(int(policy.actions(starts[:1])[0]))
            steps, over = steps + 1, bool(ended or cut)
        assert ours[trial] == steps
    assert len(set(ours.tolist())) > 1


class Leaning(Alternating):
    """Balances the pole, leaning by so much: upright it stays, otherwise the cart runs off in the end."""

    def __init__(self, lean: float) -> None:
        self.lean = lean

    def actions(self, observations: Any) -> Any:
        sway = observations[:, 2] - self.lean + 0.3 * observations[:, 3] + 0.01 * observations[:, 0]
        return (sway > 0).astype(int)


def test_the_cap_is_400_steps() -> None:
    held = run_trials(Leaning(0.0), trials=3)
    assert held.lengths.tolist() == [400] * 3
    assert not (held.fell | held.ran_off).any()


def test_the_end_of_an_episode() -> None:
    assert run_trials(Alternating(), trials=5).fell.all()
    gone = run_trials(Leaning(0.1), trials=5)
    assert gone.ran_off.all()
    assert not gone.fell.any()
    assert (gone.lengths < 400).all()


def test_the_seven_systems() -> None:
    factors = {
        name: (system.pole_mass / 0.1, system.length / 0.5, system.gravity / 9.8)
        for name, system in SYSTEMS.items()
    }
    assert factors["light"] == pytest.approx((0.5, 1, 1))
    assert factors["heavy"] == pytest.approx((2, 1, 1))
    assert factors["long"] == pytest.approx((1, 2, 1))
    assert factors["short"] == pytest.approx((1, 0.5, 1))
    assert factors["soft g"] == pytest.approx((1, 1, 0.2))
    assert factors["strong g"] == pytest.approx((1, 1, 5))


def test_bad_values() -> None:
    with pytest.raises(ArgumentError, match="`gravity` must be a positive and finite factor; got 0"):
        CartPole().scaled(gravity=0)
    with pytest.raises(ArgumentError, match="`trials` must be a whole number"):
        episode_lengths(Alternating(), trials=0)
    for make in (
        lambda: make_cartpole(step_limit=0),
        lambda: make_cartpoles(2, step_limit=0),
        lambda: fit_cartpole(cartpole_learner(episodes=1), step_limit=0),
    ):
        with pytest.raises(ArgumentError, match="`step_limit` must be a whole number, at least 1; got 0"):
            make()
    with pytest.raises(ArgumentError, match="`count` must be a whole number"):
        make_cartpoles(0)
    with pytest.raises(ArgumentError, match="`choices` must be a whole number, at least 2"):
        discretize_action(gymnasium.make("Pendulum-v1"), 1)


def test_without_numba_the_functions_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled(advance) is advance


def test_without_numba_a_hint_says_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(UncompiledWarning, match=r"numba is not installed.*certus\[rl\]"):
        fit_cartpole(cartpole_learner(episodes=1))


def test_without_gymnasium_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UnsupportedError, match=r"certus\[rl\]"):
        make_cartpole()
