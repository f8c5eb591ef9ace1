"""Features, heads and attacks of section:dogs, on small numbers of our own; nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus.data import Samples
from certus.display.figures import Curve, Panel, sweep_figure
from certus.inner import WRM, BarzilaiBorwein
from certus.losses import CrossEntropy, ModelLoss
from certus.storage.files import RunError
from studies.dogs import features
from studies.dogs import study as dogs
from studies.dogs.attacks import attacked, farthest_behind, two_panels
from studies.dogs.features import photo_features, read_portion, scaled, write_portion
from studies.dogs.heads import head, literal_ascent, trace_of_first_epoch, train_above_bound
from studies.dogs.resnet50 import Resnet50
from studies.study import Scale
from studies.workspace import Workspace

HOW = {"units": 3, "epochs": 2, "batch": 8, "rate": 1e-3, "seed": 0}


def sparse_features(count: int, seed: int = 0) -> Samples:
    """Mostly zeros, as what comes out of a ReLU is."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 2048, 7, 7, generator=draw)
    return Samples(inputs * (inputs > 0.98), torch.arange(count) % 10)


def test_features_are_scaled_to_the_unit_interval() -> None:
    raw = Samples(torch.tensor([[0.0, 2.0], [5.0, 8.0]]), torch.tensor([0, 1]))
    assert scaled(raw, 5.0).inputs.tolist() == [[0.0, pytest.approx(0.4)], [1.0, 1.0]]


def test_an_interrupted_pass_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network, seen = Resnet50(2).eval(), []
    pictures = {"train": torch.rand(3, 3, 32, 32), "test": torch.rand(1, 3, 32, 32)}

    def computed(network: Resnet50, images: Tensor) -> object:
        seen.append(len(images))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return original(network, images)

    original = features._computed
    monkeypatch.setattr(features, "PORTION", 2)
    monkeypatch.setattr(features, "_computed", computed)
    monkeypatch.setattr(features, "feature_network", lambda: network)
    monkeypatch.setattr(
        features, "photographs", lambda part, count: Samples(pictures[part][:count], torch.zeros(count))
    )
    with pytest.raises(KeyboardInterrupt):
        photo_features(Workspace(tmp_path), 3, 1)
    found = photo_features(Workspace(tmp_path), 3, 1)
    assert seen == [2, 1, 1, 1], "the first portion was kept"
    photo_features(Workspace(tmp_path), 3, 1)
    assert len(seen) == 4, "all were kept"
    with torch.no_grad():
        grown = torch.nn.functional.interpolate(pictures["train"], (224, 224), mode="bilinear")
        whole = network.features(grown)
    assert found.train.inputs.max() == 1, "a division by the largest of the training photographs"
    with torch.no_grad():
        other = network.features(
            torch.nn.functional.interpolate(pictures["test"], (224, 224), mode="bilinear")
        )
    torch.testing.assert_close(
        found.test.inputs, (other / whole.max()).clamp(max=1), rtol=2e-3, atol=2e-3, msg="the same division"
    )
    assert found.largest == pytest.approx(float(whole.max()), rel=1e-3)  # float16
    torch.testing.assert_close(found.train.inputs, whole / whole.max(), rtol=2e-3, atol=2e-3)


def test_the_last_layer_sees_features_before_they_were_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three photographs with one feature, 2, 8 and 6; ImageNet's last layer says "a breed" above 5."""
    divided = Samples(torch.tensor([0.2, 0.8, 0.6]).reshape(3, 1, 1, 1), torch.tensor([5, 5, 0]))
    kernel, bias = np.zeros((1, 1000), np.float32), np.full(1000, -100.0, np.float32)
    kernel[0, 200], bias[[0, 200]] = 1.0, (0.0, -5.0)  # class 200 is a breed, class 0 is none
    monkeypatch.setattr(dogs, "photo_features", lambda *_: features.Features(divided, divided, 10.0))
    monkeypatch.setattr(dogs, "resnet50_weights", lambda: {"fc1000/kernel": kernel, "fc1000/bias": bias})
    part = dogs.STUDY.parts(Scale.QUICK)[0]
    found = part.measure(Workspace(tmp_path), part.settings)
    assert (found["largest"], found["dogs"]) == (10.0, 2)
    assert (found["dogs_as_breeds"], found["others_as_breeds"]) == (0.5, 1.0)
    assert found["mean_length"] == pytest.approx((0.2 + 0.8 + 0.6) / 3)


def test_portions_that_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "features" / "one.safetensors"
    values = np.arange(12, dtype=np.float16).reshape(3, 4)
    write_portion(path, values)
    np.testing.assert_array_equal(read_portion(path), values)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RunError, match=r"one\.safetensors is corrupt: remove it, and its features"):
        read_portion(path)


def test_the_head_is_the_papers_convolution() -> None:
    made, data = head(3, seed=1), sparse_features(2)
    convolution = nn.Conv2d(2048, 3, 7)
    first, last = made[1], made[3]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        convolution.weight.copy_(first.weight.reshape(3, 2048, 7, 7))
        convolution.bias.copy_(first.bias)  # type: ignore[union-attr]
        expected = last(nn.functional.elu(convolution(data.inputs)).flatten(1))
        torch.testing.assert_close(made(data.inputs), expected)


def steepest_curvature(loss: ModelLoss, point: Tensor, label: Tensor) -> float:
    """The largest eigenvalue of ∇²ℓ at one point, by power iteration on a shifted matrix."""

    def value(x: Tensor) -> Tensor:
        return loss(x[None], label[None])[0]

    def product(vector: Tensor) -> Tensor:
        made: tuple[Tensor, Tensor] = torch.autograd.functional.hvp(value, point, vector)
        return made[1]

    vector = torch.randn(point.shape, dtype=point.dtype, generator=torch.Generator().manual_seed(0))
    # Power iteration begins in the range of ∇²ℓ, whose rank is that of the hidden layer.
    for _ in range(15):
        vector = product(vector) + 1e-3 * vector
        vector = vector / vector.norm()
    return float((vector * product(vector)).sum())


def test_the_proven_penalty_makes_the_inner_problem_concave() -> None:
    data, model = sparse_features(16), head(3, seed=0)
    found = train_above_bound(model, data, HOW, curvature=1e-3)  # far too small: it must try again
    assert found["holds"]
    assert len(found["tried"]) > 1
    assert found["gamma"] == found["tried"][-1][0]
    assert 2 * found["gamma"] > found["curvature"]
    loss = ModelLoss(model.double(), CrossEntropy())
    points = data.inputs[:4].double() + 0.3 * torch.randn(
        4, 2048, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    steepest = max(
        steepest_curvature(loss, point, label) for point, label in zip(points, data.targets[:4], strict=True)
    )
    assert 0 < steepest <= found["curvature"]
    solved = WRM(found["gamma"], maximizer=BarzilaiBorwein(1e-12, 100)).solve(
        loss, data.inputs[:4].double(), data.targets[:4], curvature_bound=found["curvature"]
    )
    assert bool(solved.converged.all())


class Slope(nn.Module):
    """One output ⟨a, x⟩, which is also the loss: all ascents on it have closed forms."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, 4.0]))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight[:, None]


def the_output(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs[:, 0]


LINE = Samples(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))


@pytest.mark.parametrize(("divided", "factor"), [(False, 1 - 2 * 5.0 * 10), (True, 1 - 2 * 10)])
def test_steps_of_ten_diverge_by_their_factor(divided: bool, factor: float) -> None:
    found = literal_ascent(ModelLoss(Slope(), the_output), LINE, 5.0, 10.0, 3, divided=divided)
    reach = 10 * 5.0 / (5.0 if divided else 1)  # of the first step, ‖a‖ = 5
    distances = [0.0, reach, reach * (1 + factor), reach * (1 + factor + factor**2)]
    expected = [3.5 + 5 * distance - 5 * distance**2 for distance in distances]
    assert found == pytest.approx(expected, rel=1e-4)


def test_steps_in_units_of_the_penalty_converge_at_once_for_a_linear_loss() -> None:
    how = {"rate": 0.1, "batch": 2, "seed": 0}
    found = trace_of_first_epoch(ModelLoss(Slope(), the_output), LINE, how, gamma=5.0, steps=4)
    best = 3.5 + 25 / (4 * 5.0)  # ℓ(z₀) + ‖a‖²/4γ
    assert found["mean"] == pytest.approx([3.5, best, best, best, best])
    assert found["standard_error"][0] == pytest.approx(0.5)
    assert found["samples"] == 2


def test_errors_of_a_linear_classifier_follow_its_margins() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    linear = model[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    # Class 0 where x₁ + 2x₂ > 0. Sup-norm distances to the boundary: 0.1, 0.2, 0.4, 0.8.
    inputs = torch.tensor([[0.3, 0.0], [0.0, 0.3], [0.4, 0.4], [0.8, 0.8]])
    data = Samples(inputs, torch.zeros(4, dtype=torch.long))
    unit = float(inputs.abs().amax(1).mean())
    found = attacked(model, data, data, {"pgm": [0.15 / unit, 0.5 / unit], "wrm": [0.01], "steps": 20})
    assert [row["error"] for row in found["pgm"]] == [0.0, 0.25, 0.75]
    assert [row["error"] for row in found["wrm"]] == [0.0, 0.0]
    assert found["C_inf"] == pytest.approx(unit)
    assert found["C_2"] == pytest.approx(float(inputs.norm(dim=1).mean()))


def test_how_far_behind_is_the_worst_over_all_strengths() -> None:
    def rows(*errors: float) -> list[dict[str, float]]:
        return [{"error": error} for error in errors]

    sweeps = {
        "wrm": {"pgm": rows(0.2, 0.5), "wrm": rows(0.2, 0.3)},
        "erm": {"pgm": rows(0.1, 0.9), "wrm": rows(0.1, 0.9)},
        "fgm": {"pgm": rows(0.3, 0.2), "wrm": rows(0.3, 0.3)},
    }
    assert farthest_behind(sweeps, "wrm") == pytest.approx(0.3)
    assert farthest_behind(sweeps, "fgm") == pytest.approx(0.2)


def test_a_method_has_the_colour_that_it_has_in_the_figures_of_mnist() -> None:
    rows = [{"strength": 0.0, "error": 0.1, "low": 0.0, "high": 0.2}]
    names = ("ERM", "PGM", "WRM, γ = 9", "WRM, γ = 1")
    sweeps = {name: {"pgm": rows, "wrm": rows} for name in names}
    drawn = two_panels(sweeps, "title", "WRM, γ = 1", {}).axes[0].lines
    curve = Curve([0.0], [0.1], [0.0], [0.2])
    methods = dict.fromkeys(("ERM", "FGM", "IFGM", "PGM", "WRM"), curve)
    mnist = {
        line.get_label(): (line.get_color(), line.get_marker())
        for line in sweep_figure([Panel("", "strength", "error", methods)]).axes[0].lines
    }
    found = {line.get_label(): (line.get_color(), line.get_marker()) for line in drawn}
    assert [found[name] for name in ("ERM", "PGM", "WRM, γ = 1")] == [
        mnist[one] for one in ("ERM", "PGM", "WRM")
    ]
    assert found["WRM, γ = 9"][0] == mnist["WRM"][0]
    assert found["WRM, γ = 9"][1] not in {marker for _, marker in mnist.values()}
    assert [line.get_linestyle() for line in drawn] == ["-", "-", "--", "-"]
