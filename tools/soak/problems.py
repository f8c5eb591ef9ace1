"""Attack random certified problems: no attained value may exceed a proven bound."""

from __future__ import annotations

import math
import random
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from certus.certificates import Certificate, worst_error
from certus.data import Samples
from certus.losses import predicted
from tests.oracles import Array
from tools.soak.adversaries import attack
from tools.soak.drawn import SETS, Drawn, certified, draw_problem
from tools.soak.tally import Case
from tools.soak.worst import worst_mean

SLACK = 1e-9  # relative: what adding up losses in another order may change


def try_problem(seed: int, number: int) -> Case:
    """Draw, certify and attack one problem."""
    rng = random.Random(f"problems:{seed}:{number}")
    problem, result = certified(draw_problem(rng), rng)
    rho = rng.choice(problem.rhos)
    moved, weights = result.worst_case_data(rho)
    points, library = attack(problem, result, moved.inputs.reshape(len(moved), -1), rng)
    case = Case(number, problem.words)
    case.count("problems", SETS)
    if library != "none":
        case.count(f"problems attacked by {library} too", SETS)
    costs, losses, wrong = _measured(problem, points)
    case.count("points", costs.size)
    for each in problem.rhos:
        _compare(case, "loss", worst_mean(costs, losses, each), result.bound(each), each)
        if wrong is not None:
            _compare(
                case, "error rate", worst_mean(costs, wrong, each), _known(result.error_bound(each)), each
            )
    for number, index in enumerate(np.arange(len(problem.inputs)).reshape(SETS, -1)):
        # What is proven is proven sample by sample: these few have a certificate of their own.
        each = problem.rhos[number % len(problem.rhos)]
        bound = min(level.gamma * each + float(level.bound[index].mean()) for level in result.dual_values)
        bound = bound if problem.clip is None else min(bound, problem.clip)
        _compare(case, "loss", worst_mean(costs[:, index], losses[:, index], each), bound, each)
        if wrong is not None:
            rate = worst_error(_known(result.proven_error_cost)[index], [each])[0]
            _compare(case, "error rate", worst_mean(costs[:, index], wrong[:, index], each), rate, each)
    _check_attained(case, problem, result, rho, moved, weights)
    return case


def _measured(problem: Drawn, points: Array) -> tuple[Array, Array, Array | None]:
    """Costs, losses and errors, (tries, samples), of all points of the domain, for all labels that may be."""
    tries, count, size = points.shape
    origin = problem.inputs.numpy()
    usable = problem.geometry.inside(points)
    usable[0] = True
    flat = torch.from_numpy(points.reshape(-1, size))
    moves = problem.geometry.measure(points, origin)
    moves = np.where(usable, moves, moves.max() + 1e12)
    costs, losses, wrong = [], [], []
    with torch.no_grad():
        outputs = problem.outputs(flat)
        for shift in range(problem.labels.classes if problem.labels else 1):
            targets = problem.targets.repeat(tries)
            if shift and problem.labels:
                targets = (targets + shift) % problem.labels.classes
            values = problem.criterion(outputs, targets).reshape(tries, count)
            losses.append((values if problem.clip is None else values.clamp_max(problem.clip)).numpy())
            costs.append(moves + (problem.labels.price if shift and problem.labels else 0.0))
            if problem.classes is not None:
                wrong.append((predicted(outputs) != targets).reshape(tries, count).numpy().astype(np.float64))
    return np.concatenate(costs), np.concatenate(losses), np.concatenate(wrong) if wrong else None


_Any = TypeVar("_Any")


def _known(value: _Any | None) -> _Any:
    assert value is not None
    return value


def _compare(case: Case, what: str, attained: float, bound: float, rho: float) -> None:
    if not attained <= bound + SLACK * (1 + abs(bound)):
        case.violate(f"{what} {attained!r} found within rho = {rho!r}, where at most {bound!r} was proven")
    if math.isfinite(bound) and bound > 0:
        case.count(f"{what}: within 1% of the bound", int(attained >= 0.99 * bound))
        case.count(f"{what}: within 10% of the bound", int(attained >= 0.9 * bound))


def _check_attained(
    case: Case, problem: Drawn, result: Certificate, rho: float, moved: Samples, weights: Tensor
) -> None:
    """The lower side is a distribution that exists, measured again."""
    points = moved.inputs.reshape(len(moved), -1)
    origin = problem.inputs.repeat(len(points) // len(problem.inputs), 1)
    own = problem.targets.repeat(len(points) // len(problem.inputs))
    price = 0.0 if problem.labels is None else problem.labels.price
    costs = problem.geometry.measure(points.numpy(), origin.numpy()) + price * (moved.targets != own).numpy()
    with torch.no_grad():
        mean = float(problem.losses(points, moved.targets) @ weights)
    spent, low = float(weights.numpy() @ costs), result.lower(rho)
    if not spent <= rho * (1 + SLACK) + SLACK:
        case.violate(f"a distribution at cost {spent!r} is called within rho = {rho!r}")
    if not mean >= low - SLACK * (1 + abs(low)):
        case.violate(f"a distribution of mean loss {mean!r} is called one of {low!r}, rho = {rho!r}")
