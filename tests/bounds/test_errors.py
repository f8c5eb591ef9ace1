"""What must be refused, by the path of the layer; what prevents a proof, and its repair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import CrossEntropy
from certus.bounds import RULES, rule
from certus.errors import ArgumentError, LossError, UnreadableModelError, UnsupportedError
from certus.kernel.operators import Diagonal
from certus.models import LogCosh, Normalize, Residual, Scale


class Strange(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * inputs


class Doubled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def network(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(*layers), nn.Linear(4, 2))


class Attentive(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.softmax(1)


def test_an_unknown_layer_is_named_by_its_path_and_line() -> None:
    message = r"softmax \(1\.1\.softmax\) in test_errors\.py:\d+: `return inputs\.softmax\(1\)`.*register"
    with pytest.raises(UnsupportedError, match=message):
        certus.input_smoothness(network(nn.Tanh(), Attentive()))
    with pytest.raises(UnsupportedError, match=r"softmax \(1\.0\.branch\.softmax\)"):
        certus.input_smoothness(network(Residual(Attentive())))
    with pytest.raises(UnsupportedError, match=r"LayerNorm \(1\.0\).*batch norm, which is affine"):
        certus.input_smoothness(network(nn.LayerNorm(4)))


def test_a_forward_of_its_own_is_read() -> None:
    torch.manual_seed(0)
    twice, doubled = network(nn.Tanh(), Strange(), nn.Linear(4, 4)), network(nn.Tanh(), Doubled(4, 4))
    doubled[1][1].load_state_dict(twice[1][2].state_dict())  # type: ignore[index]
    for index in (0, 2):
        doubled[index].load_state_dict(twice[index].state_dict())
    first, second = certus.input_smoothness(twice), certus.input_smoothness(doubled)
    assert first.evidence == second.evidence == "proven"
    assert first.output_lipschitz == pytest.approx(second.output_lipschitz)


def test_a_rule_of_ones_own() -> None:
    @rule(Strange)
    def strange(module: Strange, shape: tuple[int, ...]) -> Diagonal:
        return Diagonal(torch.tensor(2.0).double(), None, shape)

    try:
        torch.manual_seed(0)
        plain = network(nn.Tanh())
        twice = network(nn.Tanh(), Strange())
        twice.load_state_dict(plain.state_dict(), strict=False)
        found = certus.input_smoothness(twice)
        assert found.output_lipschitz == pytest.approx(2 * certus.input_smoothness(plain).output_lipschitz)
        assert (found.evidence, found.assumptions) == ("assumed", ("the rule of Strange (layer 1.1)",))
    finally:
        del RULES[Strange]


def test_a_rule_that_is_wrong_is_found_out() -> None:
    @rule(Strange)
    def wrong(module: Strange, shape: tuple[int, ...]) -> Diagonal:
        return Diagonal(torch.tensor(1.0).double(), None, shape)

    try:
        message = r"The rule of Strange \(layer 1\.0\) is refuted: it claims the output .* layer computes"
        with pytest.raises(certus.errors.ClaimError, match=message):
            certus.input_smoothness(network(Strange()))
    finally:
        del RULES[Strange]


def test_hooks_are_refused() -> None:
    model = network(nn.Tanh())
    model[0].register_forward_hook(lambda module, inputs, output: 3 * output)
    with pytest.raises(UnsupportedError, match=r"layer 0 \(Linear\) has forward hooks"):
        certus.input_smoothness(model)
    assert [found.path for found in certus.bounds.validate(model)] == ["0"]


REFUSED = {
    "padding": (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), "padding_mode='circular'"),
    "statistics": (nn.BatchNorm2d(1, track_running_stats=False), "track_running_stats=False"),
    "divisor": (nn.AvgPool2d(2, divisor_override=3), "divisor_override"),
    "threshold": (nn.Softplus(threshold=5.0), "threshold=5"),
    "indices": (nn.MaxPool2d(2, return_indices=True), "return_indices=True"),
}


@pytest.mark.parametrize(("layer", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_layers_with_settings_that_have_no_rule(layer: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"layer 0 .* has {message}"):
        certus.input_smoothness(nn.Sequential(layer, nn.Flatten()), input_shape=(1, 6, 6))
    assert not certus.bounds.validate(nn.Sequential(layer))[0].repairable


def test_arguments() -> None:
    model = network(nn.Tanh())
    with pytest.raises(ArgumentError, match="`input_shape` must be given"):
        certus.input_smoothness(certus.models.mnist_cnn())
    with pytest.raises(ArgumentError, match=r"`inputs` must have shape \(3,\) .*; got \(5,\)"):
        certus.input_smoothness(model, input_shape=(5,))
    with pytest.raises(ArgumentError, match="large enough for 0"):
        certus.input_smoothness(certus.models.mnist_cnn(), input_shape=(1, 1, 1))
    with pytest.raises(UnsupportedError, match="CrossEntropy, SquaredError, Logistic or SmoothMargin"):
        certus.input_smoothness(model, nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(ArgumentError, match="`model` must have one output for Logistic; got 2"):
        certus.input_smoothness(model, certus.losses.Logistic())
    broken = network(nn.Tanh())
    next(broken.parameters()).data[0, 0] = torch.nan
    with pytest.raises(ArgumentError, match="`model` must have finite weights"):
        certus.input_smoothness(broken)
    with pytest.raises(ArgumentError, match="`model` must be a torch"):
        certus.bounds.validate(3)  # type: ignore[arg-type]
    points, targets = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ArgumentError, match="`radius` must be finite and not negative; got -1"):
        certus.bounds.local_smoothness(model, points, targets, -1.0)
    with pytest.raises(LossError, match="labels from 0 to 1"):
        certus.bounds.local_smoothness(model, points, targets + 1, 0.1)
    with pytest.raises(ArgumentError, match="`inputs` must be finite"):
        certus.bounds.local_smoothness(model, points / 0, targets, 0.1)
    with pytest.raises(ArgumentError, match="`inputs` must hold at least one sample"):
        certus.bounds.local_smoothness(model, points[:0], targets[:0], 0.1)
    with pytest.raises(ArgumentError, match="`temperature` must be positive"):
        CrossEntropy(temperature=0.0)
    with pytest.raises(ArgumentError, match="`sharpness` must be positive"):
        LogCosh(-1.0)
    with pytest.raises(ArgumentError, match="`std` must be positive"):
        Normalize([0.0], [0.0])
    with pytest.raises(ArgumentError, match="`factor` must be finite"):
        Scale(torch.inf)
    with pytest.raises(LossError, match="`targets` that are 0 or 1"):
        certus.losses.Logistic()(torch.zeros(2, 1), torch.tensor([0, 2]))
    with pytest.raises(LossError, match="one output per sample"):
        certus.losses.Logistic()(torch.zeros(2, 3), torch.tensor([0, 1]))


def test_validate_lists_and_smooth_repairs() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(Residual(nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU())), nn.ELU(2.0), nn.Linear(8, 3)),
    )
    found = certus.bounds.validate(model)
    assert [obstacle.path for obstacle in found] == ["1", "2", "4.branch.1", "5"]
    assert all(obstacle.repairable for obstacle in found)
    repaired = certus.bounds.smooth(model)
    assert certus.bounds.validate(repaired) == []
    assert [type(layer) for layer in model][1] is nn.ReLU  # the model itself is left alone
    shape = (1, 6, 6)
    assert certus.input_smoothness(model, input_shape=shape).curvature == torch.inf
    assert certus.input_smoothness(repaired, input_shape=shape).curvature < torch.inf
    assert isinstance(certus.bounds.smooth(nn.ReLU()), nn.ELU)
    with pytest.raises(
        UnsupportedError, match=r"No replacement is known for 0\.softmax \(softmax\) in test_err"
    ):
        certus.bounds.smooth(nn.Sequential(Attentive()), (3,))


def test_the_model_is_left_as_it_was() -> None:
    layers = [nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Tanh(), nn.Linear(4, 2)]
    model = nn.Sequential(*layers).train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    certus.input_smoothness(model)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_table() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 3))
    bound = certus.input_smoothness(model, input_shape=(1, 2, 2))
    assert [(layer.path, layer.kind) for layer in bound.layers] == [
        *(("1", "Linear"), ("2", "Softplus"), ("3", "Linear"), ("", "loss")),
    ]
    total = sum(layer.curvature for layer in bound.layers)
    assert total == pytest.approx(bound.bounds["sum"])
    assert bound.gamma == pytest.approx(bound.curvature / 2)
    assert bound.obstacle is None
    assert bound.as_json()["evidence"] == "proven"
    sup = certus.input_smoothness(model, input_shape=(1, 2, 2), cost=certus.costs.SquaredSup())
    assert sup.gamma == torch.inf  # nothing is strongly concave under that cost
    regression = certus.input_smoothness(model, certus.losses.SquaredError(), input_shape=(1, 2, 2))
    assert regression.obstacle == "the residuals F − y are unbounded over all inputs"


def test_targets_of_a_regression_must_match_the_outputs() -> None:
    model, inputs = nn.Linear(3, 2), torch.zeros(4, 3)
    with pytest.raises(LossError, match=r"as the outputs, \(4, 2\); got shape \(4, 1\)"):
        certus.bounds.local_smoothness(model, inputs, torch.zeros(4, 1), 0.1, certus.losses.SquaredError())


def test_weights_whose_squares_overflow() -> None:
    """Refused, without an error of the arithmetic or of the eigenvalues."""
    torch.manual_seed(0)
    for layer in (0, 2):
        model = nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 3)).double()
        with torch.no_grad():
            model.get_parameter(f"{layer}.weight").mul_(1e160)
        with pytest.raises(UnreadableModelError, match=r"amplify numbers by a factor of \d.*above 1e\+60"):
            certus.input_smoothness(model, input_shape=(3,))


@pytest.mark.parametrize("shape", [(3, 8), (2, 8, 8)], ids=str)
def test_inputs_that_do_not_fit_a_convolution(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"3 channels and 2 axes where they enter .*; got"):
        certus.input_smoothness(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), input_shape=shape)


def test_a_softplus_that_jumps() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Softplus(threshold=19.5), nn.Linear(1, 2))
    with pytest.raises(UnsupportedError, match=r"threshold=19\.5.*must be at least 20"):
        certus.input_smoothness(model)


def test_a_maximum_over_padding_alone() -> None:
    """A window that holds no entry of its input has no maximum."""
    model = nn.Sequential(nn.MaxPool1d(2, stride=1, padding=1, dilation=3), nn.Flatten(), nn.Linear(1, 2))
    with pytest.raises(UnreadableModelError):
        certus.input_smoothness(model, input_shape=(1, 2))
