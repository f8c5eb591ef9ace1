"""Modules with a forward of their own: read as their layers would be, or refused by name and line."""

# mypy: disable-error-code="no-any-return, arg-type, index, operator"

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.parametrizations import spectral_norm

import certus
from certus.bounds import RULES, Analysis, rule
from certus.bounds.claims import check_operator
from certus.errors import CertusError, UnsupportedError
from certus.kernel.operators import Affine, AxisProduct, Convolution, Diagonal, Gather, Transposed
from certus.layers import LogCosh, Residual


class Written(nn.Module):
    """What ``layered`` is, as a class: functions, a loop, a layer in place, a residual by hand."""

    def __init__(self, parts: nn.Sequential):
        super().__init__()
        self.parts, self.act = parts, nn.ELU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        first, norm, pool, residual, last = (self.parts[i] for i in (0, 1, 3, 4, 6))
        x = self.act(norm(first(x)))
        x = F.avg_pool2d(x, pool.kernel_size)
        branch = residual.branch
        out = branch[2](torch.tanh(branch[0](x)))
        out += x
        assert out.shape[1] == 4  # shapes may be looked at; values may not
        return last(out.flatten(1))


def layered() -> nn.Sequential:
    torch.manual_seed(0)
    branch = nn.Sequential(nn.Conv2d(4, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 4, 1))
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ELU(), nn.AvgPool2d(2), Residual(branch)),
        *(nn.Flatten(), nn.Linear(16, 3)),
    ).double()


def test_a_class_has_the_bounds_of_its_layers() -> None:
    model = layered()
    ours, theirs = (
        Analysis(each, input_shape=(1, 6, 6), cost=certus.SquaredL2()) for each in (model, Written(model))
    )
    expected, found = certus.input_smoothness(ours), certus.input_smoothness(theirs)
    assert found.bounds == pytest.approx(expected.bounds, rel=1e-12)
    assert found.lipschitz == pytest.approx(expected.lipschitz, rel=1e-12)
    points, labels = torch.linspace(-2, 2, 72).reshape(2, 1, 6, 6), torch.tensor([0, 2])
    near = [certus.bounds.local_smoothness(each, points, labels, 0.2).curvature for each in (ours, theirs)]
    torch.testing.assert_close(near[0], near[1], rtol=1e-12, atol=0)


class Pads(nn.Module):
    """Convolutions by a function, padded by a word, and without a bias."""

    def __init__(self, padding: str) -> None:
        super().__init__()
        self.padding = padding
        self.weight = nn.Parameter(torch.randn(2, 1, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, padding=self.padding).flatten(1)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_padding_by_a_word(padding: str) -> None:
    torch.manual_seed(0)
    model = Pads(padding).double()
    found = certus.input_smoothness(model, input_shape=(1, 4, 4)).output_lipschitz
    matrix = torch.func.jacrev(model)(torch.zeros(1, 1, 4, 4, dtype=torch.float64)).detach().reshape(-1, 16)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    assert exact <= found <= 1.2 * exact


class Stops(nn.Module):
    """A part without gradients, which torch hands on as a graph of its own."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            twice = 2 * x
        return twice + x


def test_a_part_without_gradients_counts_like_any_other() -> None:
    assert certus.input_smoothness(Stops(), input_shape=(3,)).output_lipschitz == pytest.approx(3)


class Every(nn.Module):
    """Whatever moves numbers about, and what is affine by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1)
        self.matrix = nn.Parameter(torch.randn(6, 4))
        self.tokens = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(2, 1, 1))
        self.units = LogCosh(2.0)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        x = 1 - F.pad(x, (1, 0, 0, 1))[:, :, 1:, :-1].flip(2)
        x = self.up(x) + self.shift.expand(batch, -1, -1, -1)
        left, right = x.split(1, dim=1)
        x = torch.cat((left, -right / 3), 1).permute(0, 2, 3, 1).transpose(1, 2)
        x = F.interpolate(x.reshape(batch, 2, 6, 6).roll(1, 3), scale_factor=2, mode="bilinear")
        x = F.interpolate(x[..., ::2], size=(6, 12)).sum(3) - x.mean((2, 3), keepdim=True)[:, :, 0]
        x = self.units(x @ self.matrix) + torch.zeros(batch, 2, 4)
        x = torch.stack([self.tokens(x), x.clamp(min=-0.5)], 1).flatten(1)
        return torch.addmm(torch.ones(3), x, torch.ones(16, 3))


def test_functions_that_move_numbers_and_are_affine_compute_what_they_do() -> None:
    torch.manual_seed(0)
    model = Every()
    analysis = Analysis(model, input_shape=(2, 3, 3))  # compares at several points, near and far
    bound = certus.input_smoothness(analysis)
    points = torch.randn(20, 2, 3, 3)
    slopes = torch.func.vmap(torch.func.jacrev(lambda x: model(x.unsqueeze(0))[0]))(points)
    norms = torch.linalg.matrix_norm(slopes.flatten(2).detach().double(), 2)
    assert 0 < float(norms.max()) <= bound.output_lipschitz


def _operators() -> dict[str, Affine]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 3, 3, 3, generator=generator, dtype=torch.float64)
    turned = Convolution(
        weight, None, (3, 7, 7), stride=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1
    )
    return {
        "repeated": Gather(torch.tensor([[0, 0, -1], [2, 0, 1]]), (4,)),
        "last axis": AxisProduct(
            (torch.randn(3, 4, generator=generator, dtype=torch.float64),), None, (5, 4)
        ),
        "transposed": Transposed(turned, torch.ones(3, 1, 1, dtype=torch.float64)),
    }


@pytest.mark.parametrize("name", ["repeated", "last axis", "transposed"])
def test_operators_against_their_matrices(name: str) -> None:
    operator = _operators()[name]
    check_operator(name, operator)
    norm = float(torch.linalg.matrix_norm(operator.matrix(), 2))
    assert norm <= operator.norm <= 2 * norm
    if name == "repeated":
        assert operator.norm == pytest.approx(3**0.5)


class Looks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return 2 * x


class Drops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(3)


class Centres(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Flips(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.flip(0)


class Pairs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, 2 * x


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": 2 * x}


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = nn.MultiheadAttention(3, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1)
        return self.look(x, x, x)[0].squeeze(1)


class Normalises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if len(x) > 4 else 2 * x


class Gates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


class Shares(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.shape[0]


class Counts(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return x * 2


class Gambles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return random.random() * x


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.inner.register_forward_hook(lambda module, inputs, output: 2 * output)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a look at values": (
        Looks,
        r"Looks \(test_graphs\.py:\d+: `if x\.sum\(\) > 0:`\) depends on tensor values",
    ),
    "dropout in eval": (
        Drops,
        r"dropout.*test_graphs\.py:\d+: `return F\.dropout.*randomness.*nothing in eval",
    ),
    "noise": (Noisy, r"randn.*`return x \+ torch\.randn\(3\)`.*random"),
    "a mean over the batch": (Centres, r"`return x - x\.mean\(0\)`.*a reduction over the batch"),
    "samples exchanged": (Flips, r"flip.*outputs that mix samples of a batch"),
    "two outputs": (Pairs, "must return one tensor.*it returns a tuple of 2 tensors"),
    "a named output": (Named, "must return one tensor.*it returns a dict of 1 tensor"),
    "a layer as a whole": (Attends, r"MultiheadAttention \(look\) in .*: it has no rule\. .*rule\(Multihead"),
    "what a rule refuses": (Normalises, r"BatchNorm1d \(norm\) in .*`: it has track_running_stats=False, so"),
    "another function of large batches": (Branches, "Branches .*depends on the batch size"),
    "a product": (Gates, r"mul.*`return x \* torch\.sigmoid\(x\)`.*two factors that depend on the inputs"),
    "the size of a batch": (Shares, "depends on the batch size"),
    "a buffer that changes": (Counts, "changes its buffer seen in eval mode"),
    "chance": (Gambles, "differ between two calls"),
    "hooks": (Hooked, r"The layer inner \(Linear\) has forward hooks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_operations_are_named(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, message = REFUSED[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random.seed(0)
    with pytest.raises(UnsupportedError, match=message):
        certus.input_smoothness(model, input_shape=(3,))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert "forward" not in {name for module in model.modules() for name in vars(module)}
    assert capfd.readouterr() == ("", "")  # torch would print the graph that it has so far


class Counted(nn.Module):
    """The size of the batch by ``len``, which is a plain number to Python."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)).reshape(len(x), -1))


def test_the_batch_may_be_counted_by_len() -> None:
    torch.manual_seed(0)
    model = Counted().double()
    layers = nn.Sequential(model.first, nn.Tanh(), nn.Flatten(), model.last)
    found = certus.input_smoothness(model, input_shape=(1, 3, 3))
    assert found.bounds == pytest.approx(certus.input_smoothness(layers, input_shape=(1, 3, 3)).bounds)
    assert "forward" not in {name for module in model.modules() for name in vars(module)}


class Pretends(nn.Module):
    """Another function for whoever takes its graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x if isinstance(x, FakeTensor) else 3 * x


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if torch.compiler.is_exporting() else 3 * x


def test_a_graph_that_is_not_the_model_is_found_out() -> None:
    with pytest.raises(CertusError, match="calls `is_exporting`"):
        certus.input_smoothness(Asks(), input_shape=(3,))
    with pytest.raises(CertusError, match="differ from those of its layers"):
        certus.input_smoothness(Pretends(), input_shape=(3,))


class Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(torch.zeros_like(x))


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.halve = spectral_norm(nn.Linear(3, 4)), Half()

    def forward(self, x: Tensor) -> Tensor:
        x = self.halve(torch.tanh(self.first(x)))
        return self.halve(x) @ self.first.weight


def test_a_rule_of_the_users_inside_a_class_is_assumed() -> None:
    @rule(Half)
    def half(module: Half, shape: tuple[int, ...]) -> Diagonal:
        return Diagonal(torch.tensor(0.5).double(), None, shape)

    torch.manual_seed(0)
    model = Holder().train()
    try:
        found = certus.input_smoothness(model, input_shape=(3,))
    finally:
        del RULES[Half]
    assert found.evidence == "assumed"
    assert found.assumptions == ("the rule of Half (layer halve)",)
    assert [line.path for line in found.layers] == ["first", "tanh", "halve+halve@2+matmul", ""]
    proven = certus.input_smoothness(model, input_shape=(3,))  # by its functions, all of which have rules
    assert proven.evidence == "proven"
    assert proven.bounds == pytest.approx(found.bounds)


def test_validate_lists_calls_with_their_lines() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.last = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = F.leaky_relu(self.act(self.first(x)))
            return self.last(self.act(x * x.exp()))

    found = certus.bounds.validate(Mixed())
    assert [(each.path, each.kind, each.repairable) for each in found] == [
        *(("exp", "exp", False), ("mul", "mul", False)),
        *(("act", "ReLU", True), ("leaky_relu", "leaky_relu", False), ("act@2", "ReLU", True)),
    ]
    assert "x * x.exp()" in found[0].line
    assert found[3].replacement == "torch.nn.functional.elu or softplus"
    repaired = certus.bounds.smooth(Residual(nn.Sequential(nn.Linear(4, 4), nn.ReLU())))
    assert certus.bounds.validate(repaired) == []
