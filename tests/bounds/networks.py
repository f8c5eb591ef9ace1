"""Random small networks of every kind that has a rule, and what sampling finds on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from certus.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs
from certus.losses import Criterion
from tests.bounds.margins import by_margins

SMOOTH: list[Callable[[], nn.Module]] = [
    # The true softplus: torch's is linear beyond its threshold, where the slopes differ in the ninth digit.
    *(lambda: nn.Softplus(threshold=200.0), lambda: nn.Softplus(beta=4.0, threshold=200.0)),
    *(nn.Sigmoid, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, LogCosh, SmoothAbs),
    *(lambda: nn.CELU(0.5), lambda: nn.GELU(approximate="tanh")),
    *(lambda: LogCosh(3.0), lambda: SmoothAbs(2.0)),
]


@dataclass(frozen=True)
class Plan:
    """A network by its structure; the weights come from the seed."""

    kind: str
    inputs: int
    widths: tuple[int, ...]
    classes: int
    activation: int
    scale: float
    seed: int

    def build(self) -> tuple[nn.Sequential, tuple[int, ...]]:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            layers, shape = _image_layers(self) if self.kind == "cnn" else _flat_layers(self)
            model = nn.Sequential(*layers).double().eval()
            for weights in model.parameters():
                weights.data = self.scale * weights.data + 0.3 * torch.randn_like(weights)
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                    module.running_mean = torch.randn_like(module.running_mean)  # type: ignore[arg-type]
                    module.running_var = torch.rand_like(module.running_var) + 0.3  # type: ignore[arg-type]
        return model, shape


def _flat_layers(plan: Plan) -> tuple[list[nn.Module], tuple[int, ...]]:
    width, layers = plan.inputs, list[nn.Module]()
    make = SMOOTH[plan.activation]
    for index, wider in enumerate(plan.widths):
        layers += [nn.Linear(width, wider), make()]
        width = wider
        if plan.kind == "residual":
            branch = nn.Sequential(nn.Linear(width, 3), make(), nn.Linear(3, width))
            layers.append(Residual(branch, nn.Linear(width, width) if index else None))
        if plan.kind == "normed":
            layers += [nn.BatchNorm1d(width), nn.Dropout(0.5), Scale(-0.7)]
    if plan.kind == "normed":
        layers.insert(0, Normalize([0.1] * plan.inputs, [0.5] * plan.inputs))
    return [*layers, nn.Linear(width, plan.classes)], (plan.inputs,)


def _image_layers(plan: Plan) -> tuple[list[nn.Module], tuple[int, ...]]:
    choice = torch.Generator().manual_seed(plan.seed)

    def pick(*options: int) -> int:
        return options[int(torch.randint(len(options), (1,), generator=choice))]

    make, side, channels = SMOOTH[plan.activation], 3, pick(1, 1, 2)
    shape, layers = (channels, side, side), list[nn.Module]()
    for width in plan.widths[:2]:
        wider = 2 * width
        groups, padding = pick(1, channels), pick(1, 2)
        layers.append(
            nn.Conv2d(
                *(channels, wider if wider % groups == 0 else groups, pick(2, 3)),
                stride=pick(1, 2),
                padding=padding,
                dilation=pick(1, padding),
                groups=groups,
            )
        )
        channels = layers[-1].out_channels  # type: ignore[assignment]
        if pick(0, 1):
            layers.append(nn.BatchNorm2d(channels))
        layers.append(make())
        if pick(0, 1):
            layers.append(Residual(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), make())))
        if pick(0, 1):
            layers.append(nn.AvgPool2d(2, stride=pick(1, 2), padding=1, ceil_mode=bool(pick(0, 1))))
    layers += [nn.AdaptiveAvgPool2d(pick(1, 2)), nn.Flatten()]
    count = nn.Sequential(*layers).eval()(torch.zeros(1, *shape)).shape[1]
    return [*layers, nn.Linear(count, plan.classes)], shape


def plans(
    kinds: tuple[str, ...] = ("mlp", "residual", "normed", "cnn"), classes: int = 2
) -> st.SearchStrategy[Plan]:
    return st.builds(
        Plan,
        kind=st.sampled_from(kinds),
        inputs=st.integers(1, 4),
        widths=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
        classes=st.integers(classes, 4),
        activation=st.integers(0, len(SMOOTH) - 1),
        scale=st.sampled_from([0.5, 1.0, 3.0]),
        seed=st.integers(0, 2**31),
    )


@dataclass(frozen=True)
class Sampled:
    """Values at sampled points, each a lower estimate of what a bound must exceed."""

    curvature: Tensor
    slope: Tensor
    gradients: Tensor
    margin_curvature: Tensor


def sample(
    model: nn.Module, criterion: Criterion, points: Tensor, targets: Tensor, *, margins: bool = False
) -> Sampled:
    """λ_max(∇²ℓ), ‖∇ℓ‖, the Jacobians of the outputs, and λ_max of every F_k − F_y, at (batch, …) points."""
    leaf = points.clone().requires_grad_()
    outputs = model(leaf)
    slope, bent = derivatives(by_margins(criterion)(outputs, targets), leaf)
    gradients, bends = zip(
        *(derivatives(outputs[:, k], leaf, second=margins) for k in range(outputs.shape[1])), strict=True
    )
    curved = torch.zeros(0)
    if margins:
        each = torch.stack(bends, 1)
        curved = torch.linalg.eigvalsh(each.unsqueeze(2) - each.unsqueeze(1))[..., -1]
    return Sampled(torch.linalg.eigvalsh(bent)[:, -1], slope, torch.stack(gradients, 1), curved)


def derivatives(values: Tensor, leaf: Tensor, second: bool = True) -> tuple[Tensor, Tensor]:
    """Gradients (batch, size) and Hessians (batch, size, size) of one value per sample, by autograd."""
    (slope,) = torch.autograd.grad(values.sum(), leaf, create_graph=True)
    flat = slope.flatten(1)
    if not second:
        return flat.detach(), torch.zeros(0)
    if not flat.requires_grad:
        return flat, flat.new_zeros(*flat.shape, flat.shape[1])
    rows = [
        torch.autograd.grad(flat[:, i].sum(), leaf, retain_graph=True)[0].flatten(1)
        for i in range(flat.shape[1])
    ]
    bent = torch.stack(rows, 1).detach()
    # Some second derivatives of torch (Mish beyond 700) are NaN: nothing is sampled there.
    bent = torch.where(torch.isfinite(bent).flatten(1).all(1)[:, None, None], bent, 0.0)
    return flat.detach(), (bent + bent.mT) / 2


def points_and_targets(plan: Plan, shape: tuple[int, ...], count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(plan.seed + 1)
    sizes = torch.logspace(-2, 1, count, dtype=torch.float64).reshape(-1, *([1] * len(shape)))
    points = sizes * torch.randn(count, *shape, generator=generator, dtype=torch.float64)
    return points, torch.randint(plan.classes, (count,), generator=generator)
