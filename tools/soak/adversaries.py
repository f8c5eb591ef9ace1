"""Attacks on a certified problem: the library's own attacks, climbs that know the certificate,
grids of the plane, points at random, and the attacks of other libraries."""

from __future__ import annotations

import contextlib
import math
import random

import numpy as np
import torch
from torch import Tensor

from certus import WRM, ModelLoss
from certus.attacks import BIM, FGSM, PGD, minimum_norm_attack
from certus.certificates import Certificate
from certus.errors import CertusError
from certus.inner import default_maximizer
from tests.oracles import Array
from tools.soak import peers
from tools.soak.drawn import Drawn

RESTARTS, CLIMBS, SCATTERED = 6, 10, 40
SIDE = 21  # of a grid of the plane


def attack(problem: Drawn, result: Certificate, worst: Tensor, rng: random.Random) -> tuple[Array, str]:
    """(tries, samples, size) points of the domain, the samples first, and which other library took part.

    ``worst`` are the points of the certificate's own worst case: the climbs start there too.
    """
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    origin = problem.inputs.numpy()
    tries = [origin[None]]
    radius = math.sqrt(max(problem.rhos) / result.unit_cost)
    tries += [_scattered(origin, radius, generator)]
    tries += [worst.reshape(-1, *origin.shape).numpy()]
    tries += [_climbed(problem, gamma, worst, radius, generator) for gamma in _known_prices(problem, result)]
    tries += [_of_the_library(problem, result, radius, rng)]
    if origin.shape[1] == 2:
        tries += [_grid(origin, radius * factor) for factor in (0.3, 1.0, 2.0)]
        best = _best(problem, np.concatenate(tries), result.bracket(max(problem.rhos)).gamma)
        tries += [_grid(best, radius / 10), _grid(best, radius / 100)]
    library = peers.NAMES[rng.randrange(len(peers.NAMES))] if problem.classes else "none"
    if library != "none":
        tries += [peers.attack(library, problem, radius * rng.uniform(0.5, 1.5), rng.randrange(2**31))]
    points = np.concatenate(tries)
    return problem.geometry.brought_in(np.nan_to_num(points), origin), library


def _known_prices(problem: Drawn, result: Certificate) -> list[float]:
    """The very γ that prove the bounds, and a smaller one."""
    gamma = result.bracket(max(problem.rhos)).gamma
    return [gamma, 0.5 * gamma]


def _scattered(origin: Array, radius: float, generator: torch.Generator) -> Array:
    """Points at random, at all distances up to twice the radius."""
    shape = (SCATTERED, *origin.shape)
    direction = torch.randn(shape, generator=generator, dtype=torch.float64).numpy()
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    share = torch.rand(*shape[:2], 1, generator=generator, dtype=torch.float64).numpy()
    return np.asarray(origin + 2 * radius * share * direction)


def _climbed(problem: Drawn, gamma: float, worst: Tensor, radius: float, generator: torch.Generator) -> Array:
    """Ascents on ℓ − γc from several starts, written apart from the library; every step is a try.

    With a price on labels, one label in two is changed on the way.
    """
    count, geometry = len(problem.inputs), problem.geometry
    origin = problem.inputs.repeat(RESTARTS, 1)
    targets = problem.targets.repeat(RESTARTS)
    if problem.labels is not None:
        shifts = torch.randint(problem.labels.classes, targets.shape, generator=generator)
        targets = (targets + shifts * (torch.arange(len(targets)) % 2)) % problem.labels.classes
    start = torch.randn(origin.shape, generator=generator, dtype=torch.float64) * radius
    start[:count] *= 1e-3  # one near the samples themselves
    start[count : 2 * count] = worst[:count] - origin[:count]
    points = _brought_in(problem, origin + start, origin)
    tries = [points]
    for step in range(CLIMBS):
        leaf = points.clone().requires_grad_()
        height = problem.losses(leaf, targets).sum()
        slope = torch.zeros_like(leaf)
        if height.requires_grad:
            slope = torch.autograd.grad(height, leaf, allow_unused=True)[0]
        slope = slope - gamma * geometry.slope(points, origin).nan_to_num()
        length = slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
        pace = torch.minimum(radius / (1 + step) / length, torch.tensor(1.0 / gamma))
        points = _brought_in(problem, points + pace * slope.nan_to_num(), origin)
        tries.append(points)
    return torch.stack(tries).reshape(-1, count, origin.shape[1]).numpy()


def _brought_in(problem: Drawn, points: Tensor, origin: Tensor) -> Tensor:
    return torch.from_numpy(problem.geometry.brought_in(points.numpy(), origin.numpy()))


def _of_the_library(problem: Drawn, result: Certificate, radius: float, rng: random.Random) -> Array:
    """FGSM, BIM, PGD, the nearest error, and WRM at the γ of the bounds."""
    geometry, shape = problem.geometry, (-1, *problem.shape)
    loss, targets = ModelLoss(problem.model, problem.criterion), problem.targets
    origin, norm, domain = problem.inputs.reshape(shape), geometry.norm, geometry.domain
    attacks = (
        FGSM(radius, norm, domain=domain),
        BIM(0.7 * radius, norm, steps=3, domain=domain),
        PGD(1.3 * radius, norm, steps=3, restarts=2, domain=domain),
    )
    tries = [attack(loss, origin, targets) for attack in attacks]
    gamma = result.bracket(max(problem.rhos)).gamma
    maximizer = default_maximizer(geometry.cost, domain, tolerance=1e-6, max_gradients=8)
    wrm = WRM(gamma, cost=geometry.cost, domain=domain, maximizer=maximizer)
    with contextlib.suppress(CertusError):  # an ascent without end, where γ is too small: it says so
        tries.append(wrm.solve(loss, origin, targets).inputs)
    if problem.classes is not None and rng.random() < 0.5:
        searched = minimum_norm_attack(loss, origin, targets, steps=3, rounds=3, seed=0, domain=domain)
        tries.append(searched.inputs)
    return torch.stack([points.detach().reshape(problem.inputs.shape) for points in tries]).numpy()


def _grid(centers: Array, radius: float) -> Array:
    axis = np.linspace(-radius, radius, SIDE)
    steps = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 1, 2)
    return np.asarray(centers + steps)


def _best(problem: Drawn, points: Array, gamma: float) -> Array:
    """(samples, 2) the best of the tries, in ℓ − γc."""
    origin = problem.inputs.numpy()
    points = problem.geometry.brought_in(points, origin)
    tries, count, size = points.shape
    with torch.no_grad():
        losses = problem.losses(
            torch.from_numpy(points.reshape(-1, size)), problem.targets.repeat(tries)
        ).reshape(tries, count)
    heights = losses.numpy() - gamma * problem.geometry.measure(points, origin)
    return np.asarray(points[heights.argmax(0), np.arange(count)])
