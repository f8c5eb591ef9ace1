"""The MNIST results: budgets, first errors and claims, on networks and curves that are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from certus.attacks import GradientAttack, Margin
from certus.data import Samples
from certus.losses import ModelLoss
from studies.mnist import bounds, large_budget, small_budget, sup_norm
from studies.mnist import cost as training_cost
from studies.mnist import gamma as mnist_gamma
from studies.mnist.families import sup_family_parts
from studies.mnist.networks import MEAN_LENGTH, MNIST_METHODS, mnist_network, random_images, reach
from studies.mnist.surface import first_errors
from studies.mnist.sweeps import error_at_strengths, sweep_part
from studies.runner import MEASURED, read_measured, run_study
from studies.study import Part, Scale, Study
from studies.workspace import Workspace
from tests.studies.made_up import sweep_of

WRM = {"method": "wrm", "gamma": 2.0, "epochs": 1, "seed": 0, "images": 100}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """With 100 small digits, enlarged to 28 × 28, in place of MNIST."""
    drawn = load_digits()
    images = np.pad(
        (drawn.images * 255 / 16).astype(np.uint8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2))
    )
    arrays = {"inputs": images[:100], "targets": drawn.target[:100]}
    arrays |= {"test_inputs": images[100:120], "test_targets": drawn.target[100:120]}
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data/mnist-100.npz", **arrays)
    return Workspace(tmp_path)


def test_budgets_follow_from_how_far_wrm_moves_its_training_data(workspace: Workspace) -> None:
    trained = mnist_network(workspace, WRM)
    train = trained.data.train
    move = (
        (trained.wrm.solve(trained.loss, train.inputs, train.targets).inputs - train.inputs)
        .flatten(1)
        .double()
    )
    squares, largest = (move**2).sum(1), move.abs().amax(1)
    assert reach(workspace, WRM, "2") == pytest.approx(math.sqrt(squares.mean()), rel=1e-2)
    assert reach(workspace, WRM, "inf") == pytest.approx(float(largest.mean()), rel=1e-4)
    fgm = {"method": "fgm", "norm": "2", "as_far_as": WRM, "epochs": 1, "seed": 0, "images": 100}
    assert mnist_network(workspace, fgm).settings.epsilon == reach(workspace, WRM, "2")
    sup = {
        "method": "wrm",
        "cost": "linf",
        "norm": "inf",
        "as_far_as": WRM,
        "epochs": 1,
        "seed": 0,
        "images": 100,
    }
    assert mnist_network(workspace, sup).settings.rho == reach(workspace, WRM, "inf") ** 2
    assert reach(workspace, sup, "inf") == math.sqrt(mnist_network(workspace, sup).rho_hat or 0.0)


def test_errors_under_attack_are_those_of_the_attack(workspace: Workspace) -> None:
    part = sweep_part("sweep", WRM, "ifgm", {"2": [0.3]}, 20)
    clean, attacked = part.measure(workspace, part.settings)["rows"]
    trained = mnist_network(workspace, WRM)
    data, radius = random_images(trained, "test", 20), attacked["epsilon"]
    attack = GradientAttack(radius, 2.0, steps=15, step_size=radius * 2.5 / 15)
    moved = attack(trained.loss, data.inputs, data.targets)
    for row, inputs in ((clean, data.inputs), (attacked, moved)):
        assert row["error"] == float((trained.model(inputs).argmax(1) != data.targets).double().mean())


def test_the_papers_rule_with_strides_apart(workspace: Workspace) -> None:
    """By hand: the norm of each whole convolution, by its Fourier transform on the padded image."""
    how = {"method": "erm", "epochs": 1, "seed": 0, "images": 100}
    found = bounds.measure_strides(workspace, {"networks": {"a": {"ERM": how}}})["a"]["ERM"]
    layers = [layer for layer in mnist_network(workspace, how).model.modules() if hasattr(layer, "weight")]
    weights = [cast(Tensor, layer.weight).detach().double() for layer in layers]
    norms = [torch.linalg.matrix_norm(weights[2].flatten(1), 2), torch.linalg.matrix_norm(weights[3], 2)]
    for weight, size in ((weights[1], 14), (weights[0], 34)):  # 28 and 3 pixels on each side
        places = torch.fft.fft2(weight, s=(size, size)).permute(2, 3, 0, 1)
        norms.insert(0, torch.linalg.matrix_norm(places, 2).max())
    length, bend = 1.0, 0.0
    for place, norm in enumerate(float(norm) for norm in norms):
        bend = norm * bend + (place < 3) * (norm * length) ** 2
        length *= norm
    assert found == pytest.approx(math.sqrt(2) * bend + length**2, rel=2e-2)


def test_a_smoothed_loss_does_not_mislead_the_attack(workspace: Workspace) -> None:
    """Errors in the tables are those under plain cross-entropy, whatever a network was trained with."""
    how = {"method": "erm", "epochs": 1, "seed": 0, "images": 100, "label_smoothing": 0.3}
    trained = mnist_network(workspace, how)
    data = random_images(trained, "test", None)

    def plain(inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(trained.model(inputs), targets, reduction="none")

    moved = GradientAttack(0.1, math.inf, steps=15)(plain, data.inputs, data.targets)
    errors = (trained.model(moved).argmax(1) != data.targets).double().mean().item()
    assert error_at_strengths(trained, data, [0.1], clipped=False) == [pytest.approx(errors)]


def test_how_far_wrm_moves_each_image(workspace: Workspace) -> None:
    family = dict.fromkeys(MNIST_METHODS, WRM)
    part = next(one for one in sup_family_parts(Scale.QUICK, "small", family) if "lengths" in one.name)
    found = part.measure(workspace, part.settings)
    trained = mnist_network(workspace, WRM)
    data = random_images(trained, "train", 50)
    moved = trained.wrm.solve(trained.loss, data.inputs, data.targets).inputs
    lengths = sorted(
        float((after - before).abs().max()) for after, before in zip(moved, data.inputs, strict=True)
    )
    assert found["samples"] == 50
    assert found["percentiles"][::100] == pytest.approx([lengths[0], lengths[-1]])
    assert found["percentiles"][50] == pytest.approx((lengths[24] + lengths[25]) / 2)


def test_a_number_is_computed_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> float:
        calls.append(1)
        return 1.5

    assert [Workspace(tmp_path).cached_number({"of": what}, compute) for what in ("a", "a", "b")] == [1.5] * 3
    assert len(calls) == 2


def test_the_first_error_of_a_linear_margin() -> None:
    """ℓ = ⟨w, x⟩ + b moves by w/2γ: an error for γ < ‖w‖²/(2·margin), at the boundary's distance."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    inputs = torch.randn(12, 1, 4, 4)
    outputs = model(inputs).detach()
    targets = outputs.argmax(1)
    moved, gamma = first_errors(ModelLoss(model, Margin()), Samples(inputs, targets))
    weight = model.get_parameter("1.weight").detach()
    square = float(((weight[1] - weight[0]) ** 2).sum())
    margin = (outputs[:, 0] - outputs[:, 1]).abs()
    torch.testing.assert_close(gamma, square / (2 * margin), rtol=2e-2, atol=0)
    length = (moved - inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(length, margin / math.sqrt(square), rtol=2e-2, atol=0)
    assert (model(moved).argmax(1) != targets).all()


def verdicts_of(study: Study, folder: Path) -> dict[str, Any]:
    """Write a result from made-up measurements of every part; its verdicts by name."""
    tiny = replace(study, datasets=(), parts=lambda scale: [made_up(part) for part in study.parts(scale)])
    written = run_study(tiny, Scale.QUICK, Workspace(folder / "work"), folder / "results", lambda *_: None)
    assert {path.name for path in written} >= {f"{one.name}.png" for one in study.pictures}
    content = read_measured(folder / f"results/{study.name}" / MEASURED)
    page = (folder / f"results/{study.name}/README.md").read_text()
    assert all(f"\n| {one['name']} |" in page for one in content["verdicts"])
    return {one["name"]: one for one in content["verdicts"]}


def test_the_page_of_the_small_budget(tmp_path: Path) -> None:
    verdicts = verdicts_of(small_budget.STUDY, tmp_path)
    found = {name: (one["outcome"], *one["ours"].values()) for name, one in verdicts.items()}
    assert [number["value"] for number in found["concavity"][1:]] == [100, 0.97, 0.89, 1]
    assert (found["accuracy"][0], found["stability"][0], found["certificate"][0]) == ("no", "no", "partly")
    assert found["stability"][1]["value"] == pytest.approx(20)
    assert [number["value"] for number in found["certificate"][1:3]] == [2, 1]


@pytest.mark.parametrize(
    ("study", "name", "outcome", "values"),
    [
        (mnist_gamma.STUDY, "stability", "not comparable", {"at which it falls": 0}),
        (large_budget.STUDY, "concavity", "no", {"undecided points": 1}),
        (sup_norm.STUDY, "natural images", "not comparable", {"gap": 0}),
        (sup_norm.PROX_STUDY, "natural images", "not comparable", {"gap": 0}),
        (bounds.STUDY, "three wishes", "no", {"with all three, by our bound": 2}),
        (training_cost.STUDY, "runtime", "yes", {"times ERM": 12, "gradients of a sample": 16}),
    ],
    ids=lambda value: value.name if isinstance(value, Study) else "",
)
def test_the_pages_of_the_others(
    study: Study, name: str, outcome: str, values: dict[str, float], tmp_path: Path
) -> None:
    verdict = verdicts_of(study, tmp_path)[name]
    assert verdict["outcome"] == outcome
    assert {each: verdict["ours"][each]["value"] for each in values} == pytest.approx(values)


def test_the_papers_multipliers_are_those_of_keras() -> None:
    """λ‖w‖² has the gradient 2λw; torch's decay adds its own number times w."""
    assert bounds.layer_decay(None) == 0
    assert bounds.layer_decay(0.05) == "0=0.1,2=0.1,4=0.02,7=0.02"
    assert bounds.layer_decay(0.05, factor=1) == "0=0.05,2=0.05,4=0.01,7=0.01"


def made_up(part: Part) -> Part:
    """The same part, that measures nothing."""
    kind, _, rest = part.name.rpartition(":")[2].partition("-")
    method = rest.partition("-")[0]
    found: dict[str, Any] = {
        "image": {"concave": 97, "unresolved": 0},
        "halfway": {"concave": 89, "unresolved": 1},
        "count": 100,
    }
    if kind in ("pgm", "fgm", "ifgm"):
        found = sweep_of(method, 0, 0.1, 0.2, 0.3)
    elif kind == "lengths":
        found = {"samples": 20, "percentiles": [0.01 * place for place in range(101)]}
    elif kind == "network":
        reached = {"gamma": 0.5, "rho_hat": 0.25, "epsilon": None}
        known = reached if method == "wrm" else {"gamma": None, "rho_hat": None, "epsilon": 0.5}
        found = {"method": method, "seed": 0, "epochs": 1, "test_error": 0.02, "test_images": 20, **known}
    elif kind in ("surface", "gamma"):
        found = surface_of(method)
        found |= {"gamma": float(method) * MEAN_LENGTH} if kind == "gamma" else {}
    elif kind == "digits":
        blank = "QEBA" * 261 + "QA=="
        image = {"gamma": [1.0] * 10, "distance": [1.0] * 10, "read_as": [3] * 10, "pixels": [blank] * 10}
        found = {"digits": list(range(10)), "original": [blank] * 10}
        found["methods"] = dict.fromkeys(MNIST_METHODS, image)
    elif kind == "strides":
        found = {label: dict.fromkeys(rows, 1000.0) for label, rows in part.settings["networks"].items()}
    elif kind.startswith("table"):
        found = row_of(part.settings)
    elif kind == "seed":
        costs = {"erm": (1.0, 0.0), "fgm": (2.0, 1.0), "pgm": (11.0, 15.0), "paper": (12.0, 16.0)}
        costs["wrm"] = (3.0, 2.5)
        found = {name: {"seconds": cost, "gradients": count} for name, (cost, count) in costs.items()}
    return replace(part, measure=lambda workspace, settings: found)


def surface_of(method: str) -> dict[str, Any]:
    level = 1.0 if method == "wrm" else 20.0
    ends = {"error": 0.1, "low": 0.0, "high": 1.0}
    rows = [
        {"gamma": share * MEAN_LENGTH, "rho_test": level * place, "loss": loss, **ends}
        for place, (share, loss) in enumerate(((0.1, 0.5), (0.04, 2.0)), start=1)
    ]
    known = {"method": method, "gamma": 0.5, "rho_hat": 0.25, "phi": 0.1, "clean_error": 0.02}
    return known | {"samples": 10, "rows": rows}


def row_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every WRM beats ERM by 0.2, and γ = 500 is enough for a proof."""
    errors = [0.02, 0.5, 0.9] if settings["network"]["method"] == "erm" else [0.02, 0.3, 0.7]
    return {
        "table": settings["table"],
        "row": settings["row"],
        "gamma": settings["network"].get("gamma"),
        "method": settings["network"]["method"],
        "bounds": {"paper": 1000.0},
        "needed": 500.0,
        "clean_error": 0.02,
        "strengths": settings["strengths"],
        "samples": 50,
        "errors": {"unclipped": errors, "clipped": errors},
    }
