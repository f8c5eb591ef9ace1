"""``certus cartpole`` as a user meets it, and what its agents show."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from certus.mdp import load_policy, make_pendulum, variations
from certus.mdp.episodes import episode_lengths, episode_rewards
from certus.mdp.pictures import AGENT_COLOURS, animate, draw_curves
from certus.mdp.rewards import AngleReward
from certus.mdp.study import PAPER
from tests.cli.test_cli import certus, refused
from tests.pictures import line_of, pixels_of, words_of


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    done = certus("cartpole", "--seeds", "3", "--trials", "100", "-o", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "mean ± standard error over 3 seeds of 100 trials" in done.stdout
    assert "steps longer." in done.stdout
    for system in PAPER:
        assert system in done.stdout
    assert "189.8 ± 2.3" in done.stdout
    return folder / "out"


def test_robust_agents_survive_other_physics(studied: Path) -> None:
    result = json.loads((studied / "result.json").read_text())
    means = {
        agent: {name: row["mean"] for name, row in result["mean"][agent].items()} for agent in result["mean"]
    }
    for system in PAPER:
        assert means["robust"][system] >= means["nominal"][system] - 1
    assert means["robust"]["short"] > means["nominal"]["short"] + 20
    assert means["robust"]["strong g"] > means["nominal"]["strong g"] + 20
    assert result["area under the training curve"]["paired gain"]["mean"] > 0
    pixels = pixels_of(studied / "training.png")
    assert all(pixels[colour] > 100 for colour in AGENT_COLOURS)


def test_saved_agents_reload_and_repeat_their_trials(studied: Path) -> None:
    result = json.loads((studied / "result.json").read_text())
    policies = {agent: load_policy(studied / f"{agent}-1.safetensors") for agent in ("nominal", "robust")}
    for agent, policy in policies.items():
        again = episode_lengths(policy, variations()["strong g"], trials=100, seed=1).mean()
        assert again == result["lengths"][agent]["strong g"][1]


def test_training_curves_are_drawn_as_they_were(drawn: list[Figure], tmp_path: Path) -> None:
    """Two agents, six episodes in windows of two: means over both, at the middle of each window."""
    lengths = np.array([[1, 3, 5, 7, 9, 11], [3, 5, 7, 9, 11, 13]])
    draw_curves({"nominal": lengths, "robust": 2 * lengths}, tmp_path / "a.png", window=2)
    (axes,) = drawn[0].axes
    assert line_of(axes, "nominal") == ([1, 3, 5], [3, 7, 11])
    assert line_of(axes, "robust") == ([1, 3, 5], [6, 14, 22])
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert set(band[band[:, 0] == 1][:, 1]) == {2.5, 3.5}  # the quartiles of 2 and 4
    assert {"training episode", "episode length", "nominal", "robust"} <= set(words_of(drawn[0]))
    assert "Cart-pole: mean of 2 agents each, band: their middle half" in words_of(drawn[0])


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


QUICK = ("--episodes", "20", "--trials", "1")


def test_one_seed_with_the_default_penalty_of_each_variant(tmp_path: Path) -> None:
    done = certus("cartpole", *QUICK, "--seeds", "1", "-o", "x", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "over 1 seed of 1 trial each" in done.stdout
    assert "-0.0" not in done.stdout
    assert "% are carts that ran off the track" in done.stdout
    assert json.loads((tmp_path / "x/result.json").read_text())["settings"]["gamma"] == 50
    done = certus("cartpole", *QUICK, "--seeds", "1", "--covering", "-o", "x", folder=tmp_path)
    assert json.loads((tmp_path / "x/result.json").read_text())["settings"]["gamma"] == 1e5
    assert "warning" not in done.stderr
    done = certus("cartpole", *QUICK, "--seeds", "1", "--covering", "--gamma", "50", folder=tmp_path)
    assert done.stderr.count("warning: gamma = 50 is below 8.55e+03") == 1


def test_agents_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/robust-mine.safetensors").write_text("not of this command")
    for seeds in ("3", "2"):
        done = certus("cartpole", *QUICK, "--seeds", seeds, "-o", "x", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    found = sorted(path.name for path in (tmp_path / "x").glob("*.safetensors"))
    agents = [f"{agent}-{seed}.safetensors" for agent in ("nominal", "robust") for seed in range(2)]
    assert found == [*agents, "robust-mine.safetensors"]


def test_what_would_fail_at_the_end_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", full)
        message = "`--output` must be a folder that can be written to; got x (Permission denied)."
        refused(certus("cartpole", "-o", "x", folder=tmp_path), message)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    refused(certus("cartpole", "-o", "x", folder=tmp_path), "pip install 'certus[report]'")
    assert not (tmp_path / "x").exists()


def test_json_and_a_warning_with_the_threshold(tmp_path: Path) -> None:
    options = ["--gamma", "10", "--episodes", "20", "--seeds", "1", "--trials", "10", "--json", "-o", "x"]
    done = certus("cartpole", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: gamma = 10 is below 17.4") == 1
    result = json.loads(done.stdout)
    assert result["settings"]["gamma"] == 10
    assert result["mean"]["robust"]["short"]["high"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gamma", "0"], "`--gamma` must be positive and finite; got 0.0."),
        (["--episodes", "0"], "`--episodes` must be a whole number, at least 1; got 0."),
        (["--seeds", "0"], "`--seeds` must be a whole number, at least 1; got 0."),
        (["--trials", "-1"], "`--trials` must be a whole number, at least 1; got -1."),
        (["-o", "file"], "`--output` must be a folder; got file."),
        (["-o", "file/inside"], "`--output` must be a folder; got file/inside."),
    ],
)
def test_bad_values_are_refused(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(certus("cartpole", *options, folder=tmp_path), message)


def test_rewards_of_any_environment() -> None:
    means = episode_rewards(Push(), make_pendulum(step_limit=20), AngleReward(), trials=3)
    assert means.shape == (3,)
    assert (means >= np.exp(-np.pi)).all()
    assert (means <= 1).all()
