"""A random network whose curvature and slopes are climbed: what was attained, beside every bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

import certus
from certus.attacks import GradientAttack
from certus.losses import ModelLoss
from tests.bounds.ascent import climb, margin, margin_loss
from tests.bounds.image_networks import Made, random_network
from tests.bounds.zoo import Animal

RADIUS = 0.5  # of the balls on which local bounds are attacked
RHO = 0.04  # within which the mean loss of the zoo is attacked


@dataclass(frozen=True)
class Attacked:
    """Pairs (attained, bound) of one network, by name, and its depth."""

    seed: int
    depth: int
    pairs: dict[str, tuple[float, float]]

    @property
    def violations(self) -> list[str]:
        """Bounds that were exceeded, each with both numbers."""
        return [
            f"seed {self.seed}: {name} attained {attained!r}, bound {bound!r}"
            for name, (attained, bound) in self.pairs.items()
            if not attained <= bound
        ]

    @property
    def ratio(self) -> float:
        """The bound on the curvature of the loss, in units of what was attained; NaN if that is not
        positive."""
        attained, bound = self.pairs["curvature"]
        return bound / attained if attained > 0 else float("nan")


def attack_network(made: Made, seed: int, steps: int) -> Attacked:
    """Climb the loss, two margins, and the loss on balls, from points that the seed gives."""
    bound = certus.input_smoothness(made.model, input_shape=made.shape)
    assert bound.margin_curvature is not None
    assert bound.margin_lipschitz is not None
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([0.1, 0.5, 1.0, 3.0], dtype=torch.float64).reshape(4, *([1] * len(made.shape)))
    points = sizes * torch.randn(4, *made.shape, generator=generator, dtype=torch.float64)
    targets = torch.arange(4) % made.classes
    loss = margin_loss(made.model, targets)
    found = climb(loss, points, steps=steps)
    most, steep = float(found.curvature.max()), float(found.slope.max())
    pairs = {rule: (most, value) for rule, value in bound.bounds.items()}
    pairs |= {"curvature": (most, bound.curvature), "lipschitz": (steep, bound.lipschitz)}
    for above, below in ((0, 1), (1, 0)):
        apart = climb(margin(made.model, above, below), points[1:3], steps=steps)
        name = f"F_{above} − F_{below}"
        bent, slope = bound.margin_curvature[above, below], bound.margin_lipschitz[above, below]
        pairs[f"curvature of {name}"] = (float(apart.curvature.max()), float(bent))
        pairs[f"slope of {name}"] = (float(apart.slope.max()), float(slope))
    near = certus.bounds.local_smoothness(made.model, points[:2], targets[:2], RADIUS)
    around = climb(margin_loss(made.model, targets[:2]), points[:2], steps=steps // 2, radius=RADIUS)
    for index in range(2):
        for rule, values in near.bounds.items():
            pairs[f"{rule} on ball {index}"] = (float(around.curvature[index]), float(values[index]))
        pairs[f"slope on ball {index}"] = (float(around.slope[index]), float(near.lipschitz[index]))
    return Attacked(seed, made.depth, pairs)


def attack(seed: int, steps: int = 40) -> Attacked:
    """The same for the random network of a seed."""
    return attack_network(random_network(seed), seed, steps)


def attack_animal(animal: Animal, steps: int, *, full: bool = False) -> Attacked:
    """The same for a network of the zoo, and its mean loss within ρ, by PGD, beside the certified one."""
    model, shape = animal.make(full=full), animal.full_shape if full else animal.shape
    found = attack_network(Made(model, shape, 3, animal.full_depth if full else animal.depth), 0, steps)
    generator = torch.Generator().manual_seed(1)
    points, targets = torch.randn(4, *shape, generator=generator, dtype=torch.float64), torch.arange(4) % 3
    certificate = certus.certify(
        model, (points, targets), rho=RHO, local_radii=1, gamma_rounds=0, attack_steps=3
    )
    losses = ModelLoss(model, certus.CrossEntropy())
    moved = GradientAttack(RHO**0.5, 2, steps)(losses, points, targets)
    with torch.no_grad():
        pair = float(losses(moved, targets).mean()), certificate.bound(RHO)
    return replace(found, pairs=found.pairs | {"loss": pair})
