"""What the paper's experiments need of the command line: decay by layer, its ascent, concave shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import certus
from certus.cli.app import app
from certus.data import Subset
from certus.datasets import load
from certus.errors import ArgumentError
from certus.inner import WRM, PaperAscent
from certus.losses import CrossEntropy
from certus.models.networks import build_from
from certus.runs.factory import build_method

TRAIN = "train digits --model mlp:6:elu --epochs 1"


def say(line: str) -> str:
    done = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paper") / "run"
    say(f"{TRAIN} --gamma 0.2 --maximizer paper --steps 3 -o {path}")
    return path


def test_decay_by_layer_is_a_step_by_hand(tmp_path: Path) -> None:
    """One step of SGD on all samples: w ← w − lr·(∇ℓ + λw), λ by layer, none for biases and other layers."""
    path, data = tmp_path / "run", load("digits")
    line = f"{TRAIN} --method erm --optimizer sgd --lr 0.5 --batch-size 5000 -o {path}"
    say(f"{line} --weight-decay 1=0.3")
    model = build_from("mlp:6:elu", data, 0).network
    names = [name for name, weight in model.named_parameters() if weight.dim() == 2]
    CrossEntropy()(model(data.train.inputs), data.train.targets).mean().backward()
    amounts = {"1.weight": 0.3}
    assert names[0] in amounts
    found = certus.load_run(path).model.state_dict()
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        by_hand = weight - 0.5 * (weight.grad + amounts.get(name, 0.0) * weight)
        torch.testing.assert_close(found[name], by_hand.detach(), rtol=1e-4, atol=1e-6)


def test_the_papers_ascent_is_what_trains(run: Path) -> None:
    trained = certus.load_run(run)
    method = build_method(trained.settings, trained.cost, trained.domain)
    assert isinstance(method, WRM)
    assert method.maximizer == PaperAscent(3, 5e-3)
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert history[-1]["gradients"] == 4, "three steps, and one gradient that measures where they lead"


def test_the_concave_share_is_that_of_exact_hessians(run: Path) -> None:
    told = json.loads(say(f"smoothness {run} --samples 20 --json"))["sampled"]
    trained = certus.load_run(run)
    rows = Subset.of(trained.data.test, "digits@test", 20, seed=0, stratify=True).data
    model, criterion = trained.model.double(), trained.loss.criterion
    concave = 0
    for x, y in zip(rows.inputs.double(), rows.targets, strict=True):

        def loss(flat: torch.Tensor, y: torch.Tensor = y, shape: Any = x.shape) -> torch.Tensor:
            return criterion(model(flat.reshape(1, *shape)), y[None]).sum()

        hessian = torch.autograd.functional.hessian(loss, x.flatten())
        concave += bool(torch.linalg.eigvalsh(hessian)[-1] < 2 * 0.2)
    assert told["gamma"] == 0.2
    assert told["concave_share"] == concave / 20


def test_the_largest_penalty_of_each_sample(run: Path) -> None:
    told = json.loads(say(f"attack {run} --nearest --attack wrm --samples 12 --json"))
    assert len(told["gammas"]) == len(told["distances"]) == 12
    assert any(value is None or value > 0 for value in told["gammas"])
    assert "an error at gamma of at least" in say(f"attack {run} --nearest --attack wrm --samples 12")


def test_a_sweep_of_wrm_draws_how_far_it_moves(run: Path, tmp_path: Path) -> None:
    say(f"attack {run} --attack wrm --gamma 1 --gamma 0.5 --samples 10 --plot {tmp_path / 'a.svg'}")
    assert "ρ̂_test" in (tmp_path / "a.svg").read_text(), "matplotlib keeps labels as comments"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--weight-decay 9=0.1", r"`--weight-decay` must name layers of the model, \[.*\]; got '9'"),
        ("--weight-decay 0=0.1 --weight-decay 0=0.2", "`--weight-decay` must name each layer once"),
        (
            "--weight-decay 0=x",
            "`--weight-decay` must be one number, or LAYER=VALUE for each.*got '0=x'",
        ),
        ("--weight-decay x", "`--weight-decay` must be one number, or LAYER=VALUE for each layer; got 'x'"),
        ("--weight-decay 0=-1", "`--weight-decay` must be finite and not negative; got -1.0"),
        ("--maximizer steep", "`--maximizer` must be one of adaptive, paper; got 'steep'"),
        ("--maximizer paper --tolerance 0.1", "`--tolerance` must be left out with --maximizer paper"),
        ("--steps 3", "`--steps` must be left out for wrm"),
    ],
)
def test_refused(options: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=words):
        say(f"{TRAIN} --gamma 2 {options} -o {tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()
