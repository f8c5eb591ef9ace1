"""Audit of a network that claims a Lipschitz constant: what its plain weights prove.

Published figures rest on operator norms by power iteration, which are lower bounds, or on truncated series in
float32. Here the kernel proves the constants of all margins, and the accuracy that follows from them,

    r(x) = min_{k ≠ y} (F_y(x) − F_k(x))/L_ky,        accuracy at ε = share of the samples with r > ε,

with rounding, for the network with the stored weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus.certificates.error_costs import proposed_gamma
from certus.certificates.graph_files import save_problem
from certus.certificates.problem import BATCH, Problem
from certus.costs import SquaredL2
from certus.data import DataLike
from certus.domains import Unbounded
from certus.errors import require, require_number
from certus.kernel.evidence import Evidence
from certus.kernel.majorants import constants
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem as KernelProblem
from certus.kernel.problem import Values
from certus.kernel.radial import neighborhoods
from certus.kernel.rules import SampleBounds
from certus.kernel.statement import Statement
from certus.losses import CrossEntropy
from certus.storage.write import write_json

_EDGES = torch.tensor([0.0, 1.0], dtype=torch.float64)


@dataclass(frozen=True)
class AuditedRadius:
    """Accuracy within ε.

    Attributes:
        claimed: accuracy by the claimed constant, margins in the model's own precision, unproven; None
            without a claimed constant.
        stated: accuracy that was claimed outright, or None.
        proven, float32: accuracy that the kernel proves, in real arithmetic and for float32 in use; None
            where that is not covered.
        error: error rate that is proven wherever samples move by a mean squared distance of at most ε².
    """

    epsilon: float
    claimed: float | None
    stated: float | None
    proven: float
    float32: float | None
    error: float


@dataclass(frozen=True)
class Audit:
    """Claims and proofs side by side.

    Attributes:
        samples: their number; accuracy: share that the model predicts correctly, as it computes.
        claimed_lipschitz: the claim; lipschitz: proven for the outputs jointly; margin: the largest constant
            of a margin F_k − F_y, proven.
        evidence: that of the figures in real arithmetic; those in float32 rest on ``assumptions`` too.
        not_covered: why nothing is proven for float32; empty where it is.
        problem: network and samples in the kernel's form.
    """

    samples: int
    accuracy: float
    claimed_lipschitz: float | None
    lipschitz: float
    margin: float
    radii: tuple[AuditedRadius, ...]
    evidence: Evidence
    assumptions: tuple[str, ...]
    not_covered: str
    problem: KernelProblem | None

    @property
    def shortfalls(self) -> list[str]:
        """Claims that are not proven, in words."""
        words = []
        claim = self.claimed_lipschitz
        if claim is not None and not self.lipschitz <= claim:
            words.append(f"a Lipschitz constant of {claim:g} is claimed, {self.lipschitz:.9g} is proven")
        for each in self.radii:
            for stated, source in ((each.stated, "claimed"), (each.claimed, "computed from the claim")):
                if stated is not None and each.proven < stated:
                    words.append(
                        f"at {each.epsilon:.6g} an accuracy of {stated:.4%} is {source}, "
                        f"{each.proven:.4%} is proven"
                    )
        return words

    def as_json(self) -> dict[str, Any]:
        content = asdict(replace(self, problem=None))
        return {name: value for name, value in content.items() if name != "problem"} | {
            "shortfalls": self.shortfalls
        }


def audit(
    model: nn.Module,
    data: DataLike,
    *,
    epsilon: float | Sequence[float],
    claimed_lipschitz: float | None = None,
    claimed_accuracy: float | None = None,
    on_batch: Callable[[float], None] | None = None,
) -> Audit:
    """Prove the Lipschitz constants of a network, and its certified accuracy, beside what is claimed.

    Args:
        data: labelled samples, (inputs, targets).
        epsilon: L2 radii. claimed_accuracy: the accuracy claimed at the first of them.
        claimed_lipschitz: of the outputs jointly, so that each margin would have √2 of it.
        on_batch: called with the share of the samples that are done.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> result = audit(model, (torch.eye(2), torch.arange(2)), epsilon=0.5, claimed_lipschitz=1)
    >>> result.radii[0].proven, result.radii[0].float32
    (1.0, 1.0)
    """
    epsilons = [epsilon] if isinstance(epsilon, int | float) else list(epsilon)
    for each in epsilons:
        require_number("epsilon", each, zero=True)
    if claimed_lipschitz is not None:
        require_number("claimed_lipschitz", claimed_lipschitz)
    if claimed_accuracy is not None:
        require(0 <= claimed_accuracy <= 1, "claimed_accuracy", "lie between 0 and 1", claimed_accuracy)
    problem = Problem.of(model, data, CrossEntropy(), SquaredL2(), Unbounded())
    kernel, covered, reason = problem.kernel, True, ""
    try:
        deployed = kernel.deployed("float32")
        deployed.select(slice(0, 1)).deviation  # noqa: B018 (it refuses)
    except Refused as refusal:
        covered, reason = False, str(refusal)
    parts: list[list[SampleBounds]] = [[], []]
    margins = []
    for start in range(0, len(kernel), BATCH):
        index = slice(start, start + BATCH)
        real = Values.at(kernel.select(index))
        for place, whole in enumerate((kernel, deployed) if covered else (kernel,)):
            part = whole.select(index)
            values = real if part.deviation is None else real.deployed(part, part.deviation)
            around = neighborhoods(part, values, constants(part, values), _EDGES, ())
            parts[place].append(SampleBounds.at(around))
        margins.append(_own_margins(model, problem.inputs[index], problem.targets[index]))
        if on_batch is not None:
            on_batch(min(1.0, (start + BATCH) / len(kernel)))
    statements = [Statement.of(SampleBounds.joined(each)) for each in parts if each]
    everywhere, own = kernel.smoothness.everywhere, torch.cat(margins)
    assert everywhere.margin_lipschitz is not None
    radii, costs = list[AuditedRadius](), statements[0].error_costs
    assert costs is not None
    for place, each in enumerate(epsilons):
        claimed = None
        if claimed_lipschitz is not None:
            claimed = float((own > math.sqrt(2) * claimed_lipschitz * each).double().mean())
        shares = [statement.certified(each) for statement in statements]
        stated = claimed_accuracy if place == 0 else None
        deployable = shares[1] if covered else None
        error = statements[0].error(each**2, proposed_gamma(costs, each**2))
        radii.append(
            AuditedRadius(each, claimed, stated, shares[0], deployable, 1.0 if error is None else error)
        )
    return Audit(
        samples=len(kernel),
        accuracy=float((own > 0).double().mean()),
        claimed_lipschitz=claimed_lipschitz,
        lipschitz=float(everywhere.output_lipschitz[0]),
        margin=float(everywhere.margin_lipschitz.max()),
        radii=tuple(radii),
        evidence=statements[0].evidence,
        assumptions=tuple(dict.fromkeys(name for each in statements for name in each.assumptions)),
        not_covered=reason,
        problem=kernel,
    )


def _own_margins(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """(n,) F_y − max_{k ≠ y} F_k as the model computes it, in its own precision."""
    weight = next(iter(model.parameters()), inputs)
    with torch.no_grad(), eval_mode(model):
        outputs: Tensor = model(inputs.to(weight)).double().cpu()
    own = outputs.gather(1, targets.unsqueeze(1))[:, 0]
    return own - outputs.scatter(1, targets.unsqueeze(1), -math.inf).amax(1)


def write_audit(result: Audit, folder: Path, about: dict[str, Any]) -> None:
    """Write ``audit.json``, and the network that was bounded as ``graph.json`` and ``graph.safetensors``."""
    assert result.problem is not None
    folder.mkdir(parents=True, exist_ok=True)
    save_problem(folder, result.problem)
    write_json(folder / "audit.json", about | result.as_json())
