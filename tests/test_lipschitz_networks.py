"""1-Lipschitz networks: their layers, the constants that are proven, and certificates against attacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from flint import arb, arb_mat
from torch import Tensor, nn

import certus
from certus.attacks import PGD, minimum_norm_attack
from certus.bounds import input_smoothness
from certus.bounds.network import read_network
from certus.certificates import audit
from certus.errors import ArgumentError
from certus.kernel.check import check
from certus.kernel.operators import Affine, Product
from certus.layers import (
    Absolute,
    ChannelsLast,
    LengthPool,
    MaxMin,
    Offset,
    Orthogonal,
    Shift,
    UnitRows,
    Unshuffle,
    plain,
)
from certus.losses import ModelLoss
from certus.models import build_model
from certus.models.networks import lipschitz


def pictures(count: int, shape: Sequence[int] = (3, 8, 8), seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 5), (12, 7), (7, 12), (64, 10)])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_orthogonal_layers_are_orthogonal_whatever_their_weights(
    inputs: int, outputs: int, size: float
) -> None:
    layer = Orthogonal(inputs, outputs).double()
    layer.free.data *= size
    weight = layer.weight
    gram = weight @ weight.T if outputs < inputs else weight.T @ weight
    assert torch.allclose(gram, torch.eye(len(gram)).double(), rtol=0, atol=1e-12)


def test_weights_are_those_of_an_inverse() -> None:
    """The Cayley transform (I − A)(I + A)⁻¹ of a skew-symmetric A, for a square matrix."""
    layer = Orthogonal(6, 6).double()
    skew = layer.free - layer.free.T
    identity = torch.eye(6).double()
    assert torch.allclose(layer.weight, (identity - skew) @ torch.linalg.inv(identity + skew))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (MaxMin(), (4, 6)),
        (Absolute(), (7,)),
        (ChannelsLast(), (3, 4, 4)),
        (Unshuffle(2), (4, 6, 3)),
        (Shift(), (4, 4, 16)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_lengths_are_kept(layer: nn.Module, shape: tuple[int, ...]) -> None:
    points = torch.randn(50, *shape).double()
    assert torch.allclose(layer(points).flatten(1).norm(dim=1), points.flatten(1).norm(dim=1))


def test_shifts_move_an_eighth_each_way() -> None:
    image = torch.zeros(1, 3, 3, 8)
    image[0, 1, 1] = 1.0
    places = [tuple((Shift()(image)[0, :, :, channel] == 1).nonzero()[0].tolist()) for channel in range(8)]
    assert places == [(2, 1), (0, 1), (1, 2), (1, 0), *[(1, 1)] * 4]


def test_unshuffling_gathers_squares() -> None:
    image = torch.arange(16.0).reshape(1, 4, 4, 1)
    assert Unshuffle(2)(image)[0, 0, 0].tolist() == [0, 1, 4, 5]
    with pytest.raises(ArgumentError, match="sides that 3 divides"):
        Unshuffle(3)(image)


def test_rows_have_norm_1() -> None:
    layer = UnitRows(5, 3)
    layer.weight.data *= 7
    points = torch.randn(4, 5)
    expected = points @ (layer.weight / layer.weight.norm(dim=1, keepdim=True)).T + layer.bias
    assert torch.allclose(layer(points), expected, atol=1e-6)


def test_odd_widths_have_no_pairs() -> None:
    with pytest.raises(ArgumentError, match="even last axis"):
        MaxMin()(torch.zeros(2, 3))
    with pytest.raises(ArgumentError, match="width that must be even"):
        lipschitz((1, 8, 8), 9, 3, 10)


def test_plain_weights_compute_the_same() -> None:
    model = lipschitz((3, 8, 8), 8, 4, 5)
    copied, points = plain(model), pictures(6)
    assert torch.equal(copied(points), model.eval()(points))
    assert not any(isinstance(module, Orthogonal | UnitRows) for module in copied.modules())
    assert len([*copied.modules()]) == len([*model.modules()])
    assert {name.rpartition(".")[2] for name in copied.state_dict()} == {"weight", "bias"}


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (2, 6, 4), (1, 5, 7), (13,)])
def test_networks_by_name_fit_every_shape(shape: tuple[int, ...]) -> None:
    model = lipschitz(shape, 8, 5, 4).eval()
    first, second = pictures(2, shape).split(1)
    assert model(first).shape == (1, 4)
    moved = (model(first) - model(second)).detach().abs().max()
    assert float(moved) <= float((first - second).norm()) * (1 + 1e-6)


def test_a_dense_network_has_products_of_all_pixels() -> None:
    data = certus.datasets.digits()
    model = build_model("lipschitz:8x3:dense", data).eval()
    assert [type(layer).__name__ for layer in model.children()] == [
        *("Flatten", "Orthogonal", "MaxMin", "Orthogonal", "MaxMin", "Orthogonal", "MaxMin", "UnitRows")
    ]
    first, second = data.test.inputs[:50], data.test.inputs[50:100]
    moved = (model(first) - model(second)).detach().abs().amax(1)
    assert bool((moved <= (first - second).flatten(1).norm(dim=1) * (1 + 1e-6)).all())
    with pytest.raises(ArgumentError, match="`model` must be like"):
        build_model("lipschitz:8x3:sparse", data)


def test_the_reading_is_the_network() -> None:
    for shape in ((3, 8, 8), (13,)):
        model, points = lipschitz(shape, 8, 5, 4), pictures(7, shape).double()
        expected = model.double().eval()(points)
        outputs = read_network(model, shape).graph.apply(points)
        assert torch.allclose(outputs, expected, rtol=0, atol=1e-12)


def affine_parts(operator: Affine) -> list[Affine]:
    return (
        [part for each in operator.parts for part in affine_parts(each)]
        if isinstance(operator, Product)
        else [operator]
    )


@pytest.mark.quick_share(20)
@pytest.mark.parametrize("seed", range(200))
def test_constants_over_depth_in_ball_arithmetic(seed: int) -> None:
    """Up to 30 layers: each proven norm holds, since s²I − WᵀW has a positive Cholesky factor in balls, and
    their product is within 10⁻⁵ of 1."""
    torch.manual_seed(seed)
    depth, width = 1 + seed * 7 % 30, 2 * (1 + seed % 6)
    model = lipschitz((9,), width, depth, 3)
    for module in model.modules():
        if isinstance(module, Orthogonal):
            module.free.data *= 10 ** float(torch.rand(()) * 2 - 1)
    graph = read_network(model, (9,)).graph
    bound = input_smoothness(model, input_shape=(9,))
    product = math.prod(layer.norm for layer in bound.layers[:-2])
    assert product <= 1 + 1e-5
    for node in graph.nodes[1:]:
        if isinstance(node.primitive, Affine):
            from certus.bounds.norm_proposals import claim_norm

            claim_norm(node.primitive)
            for part in affine_parts(node.primitive):
                if len(part.weights) == 1:
                    assert norm_holds(part.weights[0], part.norm)


def norm_holds(matrix: Tensor, bound: float) -> bool:
    """Whether bound²·I − AAᵀ is positive definite: its Cholesky factor in ball arithmetic exists."""
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    rows = arb_mat([[arb(float(entry)) for entry in row] for row in matrix])
    gram = arb_mat(len(matrix), len(matrix), [arb(0)] * len(matrix) ** 2) + rows * rows.transpose()
    left = [
        [(arb(bound) ** 2 if i == j else arb(0)) - gram[i, j] for j in range(len(matrix))]
        for i in range(len(matrix))
    ]
    for pivot in range(len(left)):
        if not left[pivot][pivot] > 0:
            return False
        for row in range(pivot + 1, len(left)):
            factor = left[row][pivot] / left[pivot][pivot]
            left[row] = [a - factor * b for a, b in zip(left[row], left[pivot], strict=True)]
    return True


def test_a_bound_that_is_too_small_fails_in_ball_arithmetic() -> None:
    rotation = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    assert norm_holds(rotation, 1 + 1e-9)
    assert not norm_holds(rotation, 1 - 1e-9)


def trained(shape: tuple[int, ...], seed: int = 0) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A network of two classes that are apart, after a few steps."""
    torch.manual_seed(seed)
    labels = torch.arange(48) % 2
    points = pictures(48, shape, seed) + 0.4 * labels.reshape(-1, *([1] * len(shape)))
    model = lipschitz(shape, 8, 3, 2)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(15):
        optimizer.zero_grad()
        certus.losses.SmoothMargin(0.5, 4.0)(model(points), labels).mean().backward()
        optimizer.step()
    return model.eval(), (points, labels)


def test_no_attack_goes_below_a_certified_radius() -> None:
    """PGD with restarts within each sample's own radius, and a minimum-norm attack from outside."""
    model, (points, labels) = trained((1, 6, 6))
    certificate = certus.certify(
        model, (points, labels), rho=0.1, gammas=[1.0], attack_steps=0, local_radii=0
    )
    assert certificate.proven_error_cost is not None
    radii = certificate.proven_error_cost.sqrt().float()
    assert float((radii > 0.05).float().mean()) > 0.8
    loss = ModelLoss(model, certus.losses.CrossEntropy())
    for radius in radii.quantile(torch.tensor([0.2, 0.6])).tolist():
        attack = PGD(radius, norm=2, steps=8, restarts=2)
        moved = attack.perturb(loss, points, labels).inputs
        wrong = model(moved).argmax(1) != labels
        assert not bool((wrong & (radii > radius)).any())
    nearest = minimum_norm_attack(loss, points, labels, steps=5, rounds=5)
    assert bool(nearest.success.any())
    assert bool((nearest.distance >= radii * (1 - 1e-5)).all())


def test_the_bound_on_the_loss_is_the_least_majorant() -> None:
    """φ̄ = max_d softplus(m + Ld) − γd², by brute force over d, for two classes."""
    model, (points, labels) = trained((1, 6, 6))
    certificate = certus.certify(
        model, (points, labels), rho=0.1, gammas=[0.4], attack_steps=0, gamma_rounds=0
    )
    slope = float(input_smoothness(model, input_shape=(1, 6, 6)).margin_lipschitz.max())  # type: ignore[union-attr]
    outputs = read_network(model, (1, 6, 6)).graph.apply(points.double())
    margins = outputs.gather(1, 1 - labels[:, None]) - outputs.gather(1, labels[:, None])
    distances = torch.linspace(0, 10, 100_001).double()
    best = (torch.nn.functional.softplus(margins + slope * distances) - 0.4 * distances**2).amax(1)
    proven = certificate.dual_values[0].bounds.bound
    assert bool((proven >= best - 1e-9).all())
    assert float((proven - best).max()) < 2e-3


def test_what_wrm_attains_at_kinks_stays_below_the_majorant() -> None:
    """The ascent of a network with kinks may stop anywhere; the bound does not depend on it."""
    model, (points, labels) = trained((1, 6, 6))
    wrm, gamma = certus.WRM(gamma=0.4), 0.4
    run = certus.fit(model, (points, labels), method=wrm, epochs=3, batch_size=16, progress=False)
    certificate = certus.certify(
        model, (points, labels), rho=0.1, gammas=[gamma], attack_steps=0, gamma_rounds=0, local_radii=0
    )
    proven = certificate.dual_values[0].bounds.bound
    values = wrm.solve(ModelLoss(model, certus.losses.CrossEntropy()), points, labels).value
    assert bool((values.double() <= proven + 1e-6).all())
    assert run.robustness is not None
    assert run.robustness.phi <= float(proven.mean()) + 1e-6
    assert float(values.mean()) > certificate.clean_loss[0]


def test_a_whole_certificate_is_checked_from_its_files(tmp_path: Path) -> None:
    model, data = trained((1, 6, 6))
    data = data[0][:12], data[1][:12]
    options = {
        "rho": 0.01,
        "epsilon": 0.1,
        "confidence": 0.9,
        "local_radii": 0,
        "attack_steps": 0,
        "gammas": [1.0],
    }
    for deployment in (None, "float32"):
        certificate = certus.certify(model, data, deployment=deployment, **options)  # type: ignore[arg-type]
        path = tmp_path / str(deployment) / "certificate.json"
        path.parent.mkdir()
        certificate.save(path, include_data=True)
        checked = check(path)
        assert checked.verified
        assert certus.Certificate.load(path).deployment == deployment


def test_a_file_that_claims_float32_falsely_is_refused(tmp_path: Path) -> None:
    import json

    from certus.kernel.check import NotProven

    model, data = trained((1, 6, 6))
    certificate = certus.certify(model, data, rho=0.01, gammas=[1.0], attack_steps=0, local_radii=0)
    path = tmp_path / "certificate.json"
    certificate.save(path, include_data=True)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"deployment": "float32"}))
    with pytest.raises(NotProven, match="do not describe the same"):
        check(path)


def test_an_audit_counts_what_a_claim_would() -> None:
    model, (points, labels) = trained((1, 6, 6))
    result = audit(model, (points, labels), epsilon=[0.05, 0.2], claimed_lipschitz=0.5, claimed_accuracy=1.0)
    outputs = model(points).detach().double()
    margins = (outputs.gather(1, labels[:, None]) - outputs.gather(1, 1 - labels[:, None]))[:, 0]
    assert result.accuracy == float((margins > 0).double().mean())
    for each in result.radii:
        assert each.claimed == float((margins > math.sqrt(2) * 0.5 * each.epsilon).double().mean())
        assert each.proven == float((margins > result.margin * each.epsilon).double().mean())
    assert any("Lipschitz constant of 0.5 is claimed" in words for words in result.shortfalls)
    assert any("accuracy of 100.0000% is claimed" in words for words in result.shortfalls) == (
        result.radii[0].proven < 1
    )
    honest = audit(model, (points, labels), epsilon=0.05, claimed_lipschitz=2.0)
    assert honest.shortfalls == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": -1.0}, "`epsilon` must"),
        ({"epsilon": 0.1, "claimed_lipschitz": 0.0}, "`claimed_lipschitz` must"),
        ({"epsilon": 0.1, "claimed_accuracy": 58.0}, "`claimed_accuracy` must lie between 0 and 1"),
    ],
)
def test_impossible_claims_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        audit(nn.Linear(2, 2), (torch.zeros(2, 2), torch.arange(2)), **options)  # type: ignore[arg-type]


def written(layers: Sequence[nn.Module]) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), *layers, nn.Linear(8, 3))


class Halves(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        first, second = points.split(4, 1)
        return torch.cat([torch.max(first, second), torch.min(first, second)], 1)


class Pairs(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        pairs = points.view(len(points), -1, 2)
        least, most = torch.min(pairs, 2, keepdim=True)[0], torch.max(pairs, 2, keepdim=True)[0]
        return torch.cat([least, most], 2).view(points.shape)


class Sorted(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return torch.sort(points.reshape(-1, 2, 4), 2)[0].reshape(points.shape)


class Falling(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return points.sort(1, descending=True).values


@pytest.mark.parametrize(
    "activation", [MaxMin(), Halves(), Pairs(), Sorted(), Falling()], ids=lambda a: type(a).__name__
)
def test_sorting_keeps_the_constant_however_it_is_written(activation: nn.Module) -> None:
    """A concatenation of a maximum and a minimum would count twice; as a sort it does not."""
    torch.manual_seed(0)
    model = written([activation])
    network = read_network(model, (8,))
    assert [type(node.primitive).__name__ for node in network.graph.nodes].count("GroupSort") == 1
    points = torch.randn(60, 8).double()
    expected = model.double()(points)
    assert torch.allclose(network.apply(points), expected, atol=1e-9)
    ends = [
        float(torch.linalg.matrix_norm(model.get_parameter(f"{layer}.weight").detach(), 2))
        for layer in (0, 2)
    ]
    assert input_smoothness(model, input_shape=(8,)).output_lipschitz <= ends[0] * ends[1] * (1 + 1e-8)


class Larger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, points: Tensor) -> Tensor:
        return torch.maximum(self.inner(points), points)


class Lengths(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(points.reshape(-1, 8, 1), dim=2)
        return lengths


@pytest.mark.parametrize("layer", [Larger(), Lengths()], ids=lambda each: type(each).__name__)
def test_maxima_of_layers_and_lengths_are_read(layer: nn.Module) -> None:
    model, points = written([layer]).double(), torch.randn(200, 8).double()
    outputs = model(points).detach()
    assert torch.allclose(read_network(model, (8,)).apply(points), outputs, atol=1e-9)
    bound = input_smoothness(model, input_shape=(8,)).output_lipschitz
    apart = (outputs[1:] - outputs[:-1]).norm(dim=1) / (points[1:] - points[:-1]).norm(dim=1)
    assert float(apart.max()) <= bound


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda points: torch.maximum(points, torch.zeros(8)), "an argument that is constant"),
        (lambda points: points.max(0).values, "no axis of one sample"),
        (lambda points: torch.linalg.vector_norm(points.reshape(-1, 8, 1), ord=1, dim=2), "Euclidean"),
    ],
)
def test_other_orders_and_norms_are_refused(function: Callable[[Tensor], Tensor], words: str) -> None:
    class Other(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            return function(points)

    with pytest.raises(certus.errors.UnreadableModelError, match=words):
        read_network(written([Other()]), (8,))


def test_unused_layers_are_read_too() -> None:
    """Offsets and pools that no network by name combines in this way."""
    model = nn.Sequential(ChannelsLast(), Offset(4, 4, 2), Absolute(), LengthPool(), UnitRows(2, 2))
    model.get_parameter("1.bias").data = torch.randn(4, 4, 2)
    points = pictures(5, (2, 4, 4)).double()
    assert torch.allclose(
        read_network(model, (2, 4, 4)).apply(points), model.double().eval()(points), atol=1e-6
    )
