"""What is known at the samples themselves: losses, margins and their gradients, with all rounding counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.bounds.backward import MOST_CLASSES
from certus.certificates.proven.problem import Problem
from certus.errors import CertusError
from certus.losses import evaluate_loss
from certus.outward import FEW, TENS


@dataclass(frozen=True, eq=False)
class Margins:
    """At n samples, (n, classes) each: margins F_k − F_y and the dual norms of their gradients, rounded up.

    Attributes:
        gradients: (classes, n, …) without what Z blocks; None for too many classes.
        error: (n,) how far, in the dual norm, these may be from the true ones.
    """

    values: Tensor
    steepness: Tensor
    gradients: Tensor | None
    error: Tensor


@dataclass(frozen=True, eq=False)
class Values:
    """At the samples: losses and the dual norms of their gradients, rounded up, and margins."""

    loss: Tensor
    slope: Tensor
    margins: Margins | None

    @staticmethod
    def at(problem: Problem) -> Values:
        leaf = problem.inputs.clone().requires_grad_()
        with torch.enable_grad():
            losses = evaluate_loss(problem.loss, leaf, problem.targets)
            (slope,) = torch.autograd.grad(losses.sum(), leaf)
        losses, rounding = losses.detach(), problem.rounding
        steepness = problem.metric.dual(problem.feasible(slope))
        steepness = steepness + problem.metric.dual_size(problem.slope_error(losses, rounding))
        margins = _margins(problem, leaf) if problem.classes is not None else None
        losses = losses + problem.slack(losses, rounding)
        if not bool(torch.isfinite(losses).all()):
            raise CertusError("The network overflows float64 at some samples: nothing can be proven there.")
        return Values(losses, steepness, margins)


def _margins(problem: Problem, leaf: Tensor) -> Margins:
    """Margins and their gradients, of steepness ∞ for too many classes."""
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        classes = outputs.shape[1]
        own = problem.targets.unsqueeze(1)
        values = (outputs - outputs.gather(1, own)).detach()
        values = values + 2 * problem.rounding.values.unsqueeze(1) + TENS * values.abs()
        values.scatter_(1, own, 0.0)
        # Two gradients of outputs, each with its error, and the rounding of their difference.
        error = 2 * problem.metric.dual_size(problem.rounding.slopes + FEW * problem.rounding.rows)
        steepness = torch.full_like(values, math.inf).scatter_(1, own, 0.0)
        if classes > MOST_CLASSES:
            return Margins(values, steepness, None, error)
        each = [
            torch.autograd.grad(outputs[:, k].sum(), leaf, retain_graph=True, allow_unused=True)[0]
            for k in range(classes)
        ]
    rows = torch.stack([torch.zeros_like(leaf) if row is None else row for row in each])
    mine = rows[problem.targets, torch.arange(len(leaf))]
    for k in range(classes):
        rows[k] = problem.feasible(rows[k] - mine)
        steepness[:, k] = problem.metric.dual(rows[k]) + error
    return Margins(values, steepness.scatter_(1, own, 0.0), rows, error)
