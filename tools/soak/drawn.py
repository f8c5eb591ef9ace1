"""A random certified problem: a small network of any kind, samples, a criterion, prices, a clip."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from certus import CrossEntropy
from certus.certificates import Certificate, certify
from certus.costs import LabelCost
from certus.domains import Unbounded
from certus.errors import UnsupportedError
from certus.losses import Criterion, Logistic, SmoothMargin, SquaredError
from tests.bounds.networks import SMOOTH, Plan
from tests.certificates.problems import network
from tools.soak.geometry import Geometry, draw_geometry

SETS = 5  # of samples for each network: every set is a problem of its own


@dataclass(frozen=True)
class Drawn:
    """Problems that share a network; ``inputs`` are (n, size) and ``model`` takes (n, *shape)."""

    words: str
    model: nn.Module
    shape: tuple[int, ...]
    inputs: Tensor
    targets: Tensor
    criterion: Criterion
    geometry: Geometry
    labels: LabelCost | None
    clip: float | None
    rhos: tuple[float, ...]

    @property
    def classes(self) -> int | None:
        return None if self.targets.is_floating_point() else 2 if isinstance(self.criterion, Logistic) else 3

    def outputs(self, points: Tensor) -> Tensor:
        """(points, size) → (points, outputs), without a graph unless ``points`` has one."""
        outputs: Tensor = self.model(points.reshape(len(points), *self.shape))
        return outputs.flatten(1)

    def losses(self, points: Tensor, targets: Tensor) -> Tensor:
        """(points,) the loss that is certified: clipped, if it is."""
        values = self.criterion(self.outputs(points), targets)
        return values if self.clip is None else values.clamp_max(self.clip)


def draw_problem(rng: random.Random) -> Drawn:
    """Everything from the generator; torch is seeded by it too."""
    seed = rng.randrange(2**31)
    criteria: list[Criterion] = [
        CrossEntropy(),
        CrossEntropy(rng.uniform(0, 0.3), rng.uniform(0.5, 2)),
        SmoothMargin(rng.uniform(0, 2), rng.uniform(1, 6)),
        Logistic(),
        SquaredError(),
    ]
    criterion = rng.choices(criteria, (5, 1, 1, 2, 2))[0]
    count = 1 if isinstance(criterion, Logistic | SquaredError) else 3
    kind, model, shape = _draw_network(rng, seed, count)
    geometry, samples = draw_geometry(rng, shape), SETS * rng.randint(2, 5)
    size = math.prod(shape)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(samples, size, dtype=torch.float64, generator=generator) * 2 - 1
    labels: LabelCost | None = None
    if isinstance(criterion, SquaredError):
        targets = torch.randn(samples, dtype=torch.float64, generator=generator)
    else:
        classes = max(count, 2)
        targets = torch.randint(classes, (samples,), generator=generator)
        if rng.random() < 0.25:
            labels = LabelCost(10 ** rng.uniform(-1.5, 0.5), classes)
    return Drawn(
        words=f"{kind}, {type(criterion).__name__}, {geometry.words}{', priced labels' if labels else ''}",
        model=model,
        shape=shape,
        inputs=inputs,
        targets=targets,
        criterion=criterion,
        geometry=geometry,
        labels=labels,
        clip=rng.uniform(0.5, 4) if rng.random() < 0.2 else None,
        rhos=tuple(sorted(10 ** rng.uniform(-3, 0.3) for _ in range(rng.randint(1, 2)))),
    )


def _draw_network(rng: random.Random, seed: int, count: int) -> tuple[str, nn.Module, tuple[int, ...]]:
    size = 2 if rng.random() < 0.4 else rng.randint(3, 20)
    kind = rng.choices(("mlp", "residual", "normed", "cnn", "relu", "linear"), (6, 2, 2, 1, 2, 1))[0]
    if kind in ("relu", "linear"):
        return kind, network(kind, seed, count, size, rng.uniform(0.3, 3)).eval(), (size,)
    widths = tuple(rng.randint(2, 6) for _ in range(rng.randint(1, 2)))
    plan = Plan(kind, size, widths, count, rng.randrange(len(SMOOTH)), rng.choice((0.3, 0.7, 1.5)), seed)
    return kind, *plan.build()


def certified(problem: Drawn, rng: random.Random) -> tuple[Drawn, Certificate]:
    """The certificate with options of any kind; where a pair of cost and domain is refused, everywhere."""
    options: dict[str, object] = {
        "local_radii": rng.choice((0, 1, 1, 2)),
        "gamma_rounds": int(rng.random() < 0.1),
        "attack_steps": 3 * int(rng.random() < 0.2),
        "gammas": None
        if rng.random() < 0.03
        else [10 ** rng.uniform(-1.5, 1) for _ in range(rng.randint(1, 3))],
    }
    try:
        return problem, _certify(problem, options)
    except UnsupportedError:
        open_end = replace(problem.geometry, domain=Unbounded(), inside=lambda z: z[..., 0] == z[..., 0])
        problem = replace(problem, geometry=open_end)
        return problem, _certify(problem, options)


def _certify(problem: Drawn, options: dict[str, object]) -> Certificate:
    inputs = problem.inputs.reshape(-1, *problem.shape)
    geometry = problem.geometry
    return certify(
        *(problem.model, (inputs, problem.targets)),
        rho=problem.rhos,
        criterion=problem.criterion,
        cost=geometry.cost,
        domain=geometry.domain,
        label_cost=problem.labels,
        clip=problem.clip,
        progress=False,
        **options,  # type: ignore[arg-type]
    )
