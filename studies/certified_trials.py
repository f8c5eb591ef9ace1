"""What is measured of one network in ``certified-training``: proven bounds, and errors under attack.

PGM-∞ of the paper's 15 steps, a stronger attack and AutoAttack attain errors; certificates prove bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import certus
from certus.attacks.adapters import Torchattacks
from certus.attacks.evaluate import Outcome, attack_data, worst_of
from certus.attacks.gradient import pgm
from certus.attacks.minimum_norm import Margin
from certus.certificates.cache import FileMemory
from certus.certificates.proven.knapsack import worst_error
from certus.data import Split
from certus.domains import Unbounded
from certus.losses import CrossEntropy, ModelLoss
from certus.runs.loaded_run import TrainedRun
from certus.storage.tensors import digest
from certus.training import evaluate
from studies.workshop import Workshop


@dataclass(frozen=True)
class SupTrial:
    """PGM-∞ of one strength, with images kept in [0, 1] or not."""

    epsilon: float
    clipped: bool

    @property
    def name(self) -> str:
        return f"{'clipped' if self.clipped else 'unclipped'} {self.epsilon:.2f}"

    def weak(self, trained: TrainedRun, data: Split) -> float:
        """15 steps of ε/4, as the paper has it, from a random start."""
        return error_of(self._run(trained, plain_loss(trained), data, 15, self.epsilon / 4, 1))

    def strong(self, trained: TrainedRun, data: Split) -> float:
        """The worst of cross-entropy and margin, 40 steps, two random starts each."""
        losses = [plain_loss(trained), ModelLoss(trained.loss.model, Margin())]
        return error_of(
            worst_of([self._run(trained, loss, data, 40, self.epsilon / 16, 2) for loss in losses])
        )

    def auto(self, trained: TrainedRun, data: Split) -> float:
        """AutoAttack (APGD, targeted APGD and FAB, Square); it always clips."""
        import torchattacks

        attack = Torchattacks(partial(torchattacks.AutoAttack, norm="Linf", eps=self.epsilon, seed=0))
        return error_of(attack_data(plain_loss(trained), data, attack, batch_size=len(data)))

    def _run(
        self, trained: TrainedRun, loss: ModelLoss, data: Split, steps: int, step: float, starts: int
    ) -> Outcome:
        domain = trained.data.domain if self.clipped else Unbounded()
        attack = pgm(self.epsilon, math.inf, steps=steps, step_size=step, domain=domain, restarts=starts)
        return attack_data(loss, data, attack, batch_size=500)


SUP_TRIALS = tuple(SupTrial(epsilon, clipped) for clipped in (True, False) for epsilon in (0.05, 0.10))


def plain_loss(trained: TrainedRun) -> ModelLoss:
    """Cross-entropy, whatever the network was trained with."""
    return ModelLoss(trained.loss.model, CrossEntropy())


def error_of(outcome: Outcome) -> float:
    """The error rate under an attack."""
    error = outcome.error()
    assert error is not None
    return error.value


def proven_curvature(trained: TrainedRun) -> dict[str, float | None]:
    """L̄ of cross-entropy, by the best rule and as the paper prints it."""
    shape = tuple(trained.data.test.inputs.shape[1:])
    found = certus.input_smoothness(trained.loss.model, input_shape=shape)
    return {"curvature": found.curvature, "paper": found.bounds["paper"]}


def clean_error(trained: TrainedRun, data: Split) -> dict[str, float]:
    """Without an attack."""
    found = evaluate(plain_loss(trained), data)
    return {"error": 1 - found["accuracy"], "loss": found["loss"]}


def evenly_spaced(data: Split, count: int) -> Split:
    """So many samples: the first half of MNIST's test images differs from the second."""
    return data[:: len(data) // count][:count]


def certified_errors(
    workshop: Workshop, trained: TrainedRun, data: Split, rhos: Sequence[float]
) -> dict[str, float]:
    """The proven error rate at each ρ, a thousand images at a time."""
    costs: list[float] = []
    weights = digest(dict(trained.loss.model.state_dict()))
    for first in range(0, len(data), 1_000):
        part = data[first : first + 1_000]
        about = {"error floors of": weights, "first": first, "count": len(part)}
        costs += workshop.piece(about, partial(_floors, trained, part, rhos))
    worst = worst_error(torch.tensor(costs, dtype=torch.float64), rhos)
    return dict(zip(map(str, rhos), worst, strict=True))


def _floors(trained: TrainedRun, part: Split, rhos: Sequence[float]) -> list[float]:
    """(n,) what an error of each image costs at least."""
    found = certus.certify(
        trained.loss.model, part, rho=rhos, gammas=[4.0], balls=0, refine=0, attack_steps=0
    )
    assert found.error_floor is not None
    return [float(cost) for cost in found.error_floor]


def loss_certificate(
    workshop: Workshop, trained: TrainedRun, data: Split, rhos: Sequence[float]
) -> list[dict[str, Any]]:
    """Attained and proven loss and error at each ρ, in all of space."""
    samples = {"inputs": data.inputs, "targets": data.targets}
    question = [list(rhos), digest(dict(trained.loss.model.state_dict())), digest(samples)]
    memory = FileMemory(trained.run.path / "unfinished", question)
    found = certus.certify(
        trained.loss.model, data, rho=rhos, balls=0, refine=0, attack_steps=5, memory=memory
    )
    memory.forget()
    return [
        {
            "rho": bracket.rho,
            "error attacked": bracket.error_low,
            "error certified": bracket.error_high,
            "loss attacked": bracket.loss_low,
            "loss certified": bracket.loss_high,
        }
        for bracket in found.curve()
    ]
