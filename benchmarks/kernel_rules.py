"""What each rule of the trusted kernel is worth: certificates and bounds without it, beside those with all.

Six networks after 300 steps of Adam, and one of certified training, 30 test rows each, certified at two ρ.
For each rule that is left out: the largest ratio of the two upper sides of the loss, of those of the error
rate, and of L⁺, the bound on the curvature of the loss everywhere, to those with all rules. A rule is left
out of the bounds only: proposals for it are made all the same.

    python -m benchmarks.kernel_rules
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.bounds import norm_proposals
from certus.certificates import local_bounds, proposals
from certus.data import Samples
from certus.datasets import load
from certus.kernel import majorants, pointwise, radial, rules
from certus.kernel.losses import Score, Softmax
from certus.kernel.operators import Affine, Convolution
from certus.kernel.passes import times
from certus.kernel.problem import Problem
from certus.kernel.rules import Rule
from certus.kernel.smoothness import Smoothness
from certus.layers import LogCosh, Residual

RHOS = (0.003, 0.03)


@dataclass(frozen=True)
class Args:
    rows: Annotated[int, "test rows that are certified"] = 30
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/kernel_rules.json")


def networks() -> dict[str, tuple[nn.Module, Samples]]:
    """Trained networks and their test rows."""
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24))
    square = nn.Unflatten(1, (1, 8, 8))
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, padding=1)
    plain: dict[str, tuple[str, nn.Module]] = {
        "mlp, tanh": ("digits", nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))),
        "mlp, log cosh": ("digits", nn.Sequential(nn.Linear(64, 32), LogCosh(2.0), nn.Linear(32, 10))),
        "residual, tanh": (
            "digits",
            nn.Sequential(nn.Linear(64, 24), nn.Tanh(), Residual(block), nn.Tanh(), nn.Linear(24, 10)),
        ),
        "cnn, ELU": (
            "digits",
            nn.Sequential(square, first, nn.ELU(), second, nn.ELU(), nn.Flatten(), nn.Linear(64, 10)),
        ),
        "two classes, linear": ("breast-cancer", nn.Sequential(nn.Linear(30, 2))),
        "two classes, softplus": (
            "breast-cancer",
            nn.Sequential(
                nn.Linear(30, 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 2)
            ),
        ),
    }
    trained = {}
    for name, (source, model) in plain.items():
        data = load(source)
        inputs, targets = data.train.inputs.flatten(1).double(), data.train.targets
        optimizer = torch.optim.Adam(model.double().parameters(), 0.01)
        for _ in range(300):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        trained[name] = model, Samples(data.test.inputs.flatten(1).double(), data.test.targets)
    data = load("digits")
    model = certus.models.build_model("certified-mlp:64", data, seed=0)
    certus.fit(
        *(model, data),
        method=certus.WRM(gamma=1.0),
        epochs=5,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-2),
        certified=certus.training.CertifiedTraining(),
        progress=False,
    )
    trained["mlp, certified training"] = model.double(), Samples(data.test.inputs.double(), data.test.targets)
    return trained


def _endless(values: Tensor) -> Tensor:
    return torch.full_like(values, math.inf)


def _without_relation(joint: pointwise.Joint) -> Callable[..., Tensor]:
    """The max rule without a relation between σ'' and σ'."""
    whole = pointwise.max_rule

    def plain(site: pointwise.Site, *rows: Any) -> Tensor:
        return whole(replace(site, joint=pointwise.Joint.NOTHING) if site.joint is joint else site, *rows)

    return plain


def _without_max_rule() -> Callable[..., tuple[Tensor, Tensor]]:
    whole = Smoothness._max_rule

    def nothing(self: Smoothness, *around: Any) -> tuple[Tensor, Tensor]:
        curvature, slope = whole(self, *around)
        return _endless(curvature), slope

    return nothing


def _without_rule(*dropped: Rule) -> Callable[..., dict[Rule, Tensor]]:
    whole = rules.bounds_by_rule

    def others(*about: Any) -> dict[Rule, Tensor]:
        bounds = whole(*about)
        return {rule: _endless(bound) if rule in dropped else bound for rule, bound in bounds.items()}

    return others


def _without_local_rings() -> Callable[..., Any]:
    """Balls have no rings of their own: majorants everywhere bound the loss on all rings."""
    whole = radial.neighborhoods

    def everywhere(problem: Any, values: Any, bounds: Any, edges: Tensor, balls: Any, *rest: Any) -> Any:
        return whole(problem, values, bounds, edges, [], *rest)

    return everywhere


def _one_mean_for_both(
    self: Softmax, curvature: Tensor, spread: Tensor, error: Tensor, classes: int
) -> Tensor:
    return times(self.weight(error, classes), curvature) + self.variance(error) * spread**2


def _columns_and_rows(norm: Callable[[Affine], float]) -> property:
    """√(‖A‖₁‖A‖_∞) for convolutions."""
    return property(lambda self: self.absolute_norm if isinstance(self, Convolution) else norm(self))


def _without_roots() -> Callable[..., Tensor]:
    whole = Score.bound
    return lambda self, price, roots=None: whole(self, price)


def left_out() -> dict[str, list[Any]]:
    """Rule → patches that leave it out."""
    whole = cast(property, Affine.__dict__["norm"]).fget
    assert whole is not None
    return {
        "parabolas": [
            patch.object(
                local_bounds,
                "with_parabolas",
                lambda problem, values, *_: majorants.constants(problem, values),
            ),
        ],
        "hidden layer": [
            patch.object(module, "hidden_layer", lambda problem: None) for module in (majorants, proposals)
        ],
        "low rank": [patch.object(proposals, "_factor", lambda problem: None)],
        "balls": [patch.object(local_bounds, "neighborhoods", _without_local_rings())],
        "rings": [patch.object(rules, "bounds_by_rule", _without_rule(Rule.RADIAL))],
        "gap": [patch.object(rules, "bounds_by_rule", _without_rule(Rule.LOCAL, Rule.CONCAVE))],
        "softplus": [patch.object(Score, "bound", _without_roots())],
        "sum rule": [patch.object(Softmax, "combine", lambda self, c, s, error, k: _endless(error))],
        "max rule": [patch.object(Smoothness, "_max_rule", _without_max_rule())],
        "arc": [patch.object(pointwise, "max_rule", _without_relation(pointwise.Joint.ARC))],
        "logistic": [patch.object(pointwise, "max_rule", _without_relation(pointwise.Joint.LOGISTIC))],
        "corrected": [
            patch.object(Softmax, "corrected", lambda self, curvature, lipschitz: _endless(lipschitz))
        ],
        "two classes": [patch.object(Softmax, "combine", _one_mean_for_both)],
        "eigenvalues": [
            patch.object(
                pointwise, "exact_curvature", lambda site, weights: _endless(weights.flatten(2)[..., 0])
            )
        ],
        "frequencies": [patch.object(Affine, "norm", _columns_and_rows(whole))],
        "domain": [patch.object(Problem, "feasible", lambda self, slopes: self.cost.freed(slopes))],
    }


def measured(model: nn.Module, rows: Samples) -> dict[str, list[float]]:
    """Upper sides at the ρ, and L⁺."""
    norm_proposals._CACHE.clear()
    domain = certus.domains.Box(0, 1) if rows.inputs.shape[1] == 64 else certus.domains.Unbounded()
    certificate = certus.certify(model, rows, rho=RHOS, domain=domain, attack_steps=0, progress=False)
    brackets = [certificate.bracket(rho) for rho in RHOS]
    return {
        "loss": [bracket.loss_high for bracket in brackets],
        "error": [bracket.error_high or 0.0 for bracket in brackets],
        "curvature": [certus.input_smoothness(model, input_shape=rows.inputs.shape[1:]).curvature],
    }


def ratios(model: nn.Module, rows: Samples) -> Iterator[tuple[str, dict[str, float]]]:
    """Rule → the largest ratio of each quantity without it to that with all rules."""
    start = measured(model, rows)
    for name, patches in left_out().items():
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each)
            bounds = measured(model, rows)
        yield (
            name,
            {
                kind: max(new / old for new, old in zip(bounds[kind], start[kind], strict=True))
                for kind in start
            },
        )


def main(args: Args) -> None:
    torch.set_num_threads(1)
    content: dict[str, Any] = {}
    for network, (model, rows) in networks().items():
        entries = content.setdefault(network, {})
        for name, entry in ratios(model, Samples(rows.inputs[: args.rows], rows.targets[: args.rows])):
            entries[name] = entry
            print(network, name, {kind: f"{ratio:.10g}" for kind, ratio in entry.items()}, flush=True)
    write_result(args, {"networks": content})


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
