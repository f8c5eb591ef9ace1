"""What is mutated, in two campaigns: the code that upper bounds rest on, and the code around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "certus"


@dataclass(frozen=True)
class Target:
    """A file below ``src/certus``.

    Attributes:
        only: functions ("name", "Class" or "Class.name") that are mutated; all if empty.
        never: functions and constants that are not: they describe, or decide nothing but effort.
    """

    path: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


TARGETS = (
    Target("kernel/operators.py", never=("_AT_ONCE",)),
    Target("kernel/norms.py"),
    Target("kernel/graph.py", never=("_LARGEST", "_APART")),
    Target("kernel/passes.py"),
    Target("kernel/pointwise.py"),
    Target("kernel/max_pool.py"),
    Target("kernel/curvature.py", never=("_EIGENVALUE_WORK",)),
    Target("kernel/losses.py", never=("_LEAST",)),
    Target("kernel/smoothness.py", never=("MOST_CLASSES",)),
    Target("kernel/rounding.py"),
    Target("kernel/costs.py"),
    Target("kernel/problem.py", never=("_NUMBERS",)),
    Target("kernel/majorants.py", never=("_CORNER", "_NUMBERS")),
    Target("kernel/radial.py"),
    Target("kernel/rules.py", never=("_SHARE",)),
    Target("bounds/analysis.py"),
    Target("bounds/merging.py"),
    Target("bounds/criteria.py"),
    Target("bounds/layer_rules.py"),
    Target("bounds/network.py"),
    Target("bounds/graph_reader.py", never=("inspect_graph", "GraphReader._name", "GraphReader._once")),
    Target("bounds/export.py"),
    Target("bounds/function_rules.py"),
    Target("bounds/equivalence.py"),
    Target("certificates/linear.py", never=("_HALVINGS", "_STIFFEST", "_SOFTEST", "_FAR", "_BESIDE")),
    Target("certificates/problem.py", never=("BATCH",)),
    Target("kernel/statement.py", never=("_ABOVE",)),
    Target("certificates/dual_values.py", only=("solve_gamma", "DualAggregate")),
    Target("certificates/local_bounds.py"),
    Target("certificates/batching.py"),
    Target("certificates/population.py", never=("_FAR",)),
    Target("certificates/certificate.py"),
    # What is certified by noise; who proposes coefficients, and which, does not matter.
    Target("kernel/knapsack.py"),
    Target("kernel/concentration.py"),
    Target("kernel/binomial.py", never=("_CELLS",)),
    Target("kernel/smoothing.py", never=("_TOGETHER",)),
    Target("smoothing/voting.py", only=("gives_label", "_even_odds", "Smoothed")),
    Target("smoothing/sampling.py"),
    Target("smoothing/sampling.py", never=("_ROOM", "_ROWS")),
    Target("smoothing/certificate.py", only=("Quantity", "SmoothedCertificate._check")),
    Target("smoothing/_certify.py", only=("certify_smoothed", "_badness")),
    Target("norms.py"),
    Target("costs/base.py", only=("Cost.gap", "Cost.kernel", "infinite_unless", "separable_response")),
    Target(
        "costs/quadratic.py",
        only=(
            *("_Quadratic", "SquaredL2.kernel"),
            *("WeightedL2.gap", "WeightedL2.kernel", "WeightedL2.whiten"),
            *("Mahalanobis._power", "Mahalanobis.kernel", "Mahalanobis.uncoupled", "Mahalanobis.whiten"),
        ),
    ),
    Target(
        "costs/lp.py",
        only=(
            *("_SquaredNorm.growth", "_SquaredNorm.kernel"),
            *("SquaredLp.strong_convexity", "SquaredSup.strong_convexity"),
        ),
    ),
    Target("costs/masked.py", only=("Masked.growth", "Masked.strong_convexity", "Masked.kernel")),
    Target("domains.py", only=("Box.kernel", "Ball.kernel")),
)

TESTS = (
    "tests/kernel",
    "tests/bounds",
    "tests/certificates",
    "tests/training/certified",
    "tests/costs",
    "tests/test_domains.py",
    "tests/test_rounding.py",
)
"""Where the tests are that must notice."""

NOT_TESTS = (
    "tests/bounds/test_mutants.py",
    *(f"tests/certificates/test_{name}.py" for name in ("code_digest", "cache", "verification")),
)
"""Those that compare the code with itself."""


_AROUND = (
    *("training", "surrogate", "attacks", "data", "runs", "models", "sklearn", "readers", "mdp"),
    "certificates/attained",
)

AROUND_TARGETS = tuple(
    Target(path)
    for part in _AROUND
    for path in sorted(str(file.relative_to(SOURCES)) for file in (SOURCES / part).rglob("*.py"))
    if path not in {target.path for target in TARGETS}
)


@dataclass(frozen=True)
class Campaign:
    """A set of targets with the tests that must notice.

    Attributes:
        per_file: the least number of sites drawn from each file; with None, sites are drawn uniformly.
        skipped: tests that compare the code with itself.
    """

    name: str
    targets: tuple[Target, ...]
    tests: tuple[str, ...]
    skipped: tuple[str, ...]
    per_file: int | None

    @property
    def calls(self) -> Path:
        return ROOT / "build" / f"calls-{self.name}.json"

    @property
    def results(self) -> Path:
        return Path(__file__).parent / f"{self.name}.jsonl"

    @property
    def survivors(self) -> Path:
        return Path(__file__).parent / f"{self.name}-survivors.md"


CAMPAIGNS = {
    campaign.name: campaign
    for campaign in (
        Campaign("bounds", TARGETS, TESTS, NOT_TESTS, per_file=6),
        Campaign(
            "around",
            AROUND_TARGETS,
            (
                *(f"tests/{part.split('/')[0]}" for part in _AROUND if part != "models"),
                *("tests/test_models.py", "tests/inner/test_methods.py", "tests/test_losses.py"),
                *(
                    "tests/test_subsets.py",
                    "tests/cli",
                    "tests/display",
                    "tests/test_examples.py",
                ),
            ),
            ("tests/certificates/test_code_digest.py",),
            per_file=None,
        ),
    )
}
