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
    # Which path a large operator takes is effort; both paths are tested against each other.
    Target(
        "bounds/operators.py",
        never=("_DENSE_ENTRIES", "_SMALL_SIDE", "Operator.small", "Operator.table_rows", "Chain.paper_norm"),
    ),
    Target("bounds/spectral.py", never=("_DENSE", "_AT_ONCE", "_CACHED")),
    Target("bounds/passes.py"),
    Target("bounds/activations.py", never=("Activation.table_rows", "MaxPool.table_rows")),
    Target("bounds/curvature_rules.py", never=("_EIGENVALUE_WORK",)),
    Target("bounds/analysis.py"),
    Target("bounds/backward.py", never=("MOST_CLASSES",)),
    Target("bounds/criteria.py"),
    Target("costs/metric.py"),
    Target("bounds/layer_rules.py"),
    Target("bounds/network.py"),
    # The graph of a model, and what is made of it.
    Target("bounds/graph.py", never=("Sum.table_rows", "Subgraph.table_rows", "_LARGEST", "_APART")),
    Target("bounds/graph_reader.py", never=("inspect_graph", "GraphReader._name", "GraphReader._once")),
    Target("bounds/export.py"),
    Target("bounds/function_rules.py"),
    Target("bounds/constant_folding.py"),
    Target("bounds/equivalence.py"),
    Target("certificates/proven/float_error.py"),
    Target("certificates/proven/radial.py"),
    Target("certificates/proven/constants.py", never=("_REACHED",)),
    Target(
        "certificates/proven/majorants.py",
        never=(
            *("_CLASSES", "_DISTANCES", "_SCALES", "_APART", "_WORK", "_CORNER", "_SLIGHT"),
            *("_ABOVE", "_CLOSELY", "_REACHED", "_AT_ONCE"),
        ),
    ),
    Target("certificates/proven/duality_gap.py"),
    Target("certificates/proven/linear.py", never=("_HALVINGS", "_NEWTON")),
    Target("certificates/linear.py", never=("_HALVINGS", "_STIFFEST", "_SOFTEST", "_BESIDE")),
    Target("certificates/proven/knapsack.py"),
    Target("certificates/proven/concentration.py", never=("_NARROW",)),
    Target("certificates/proven/concentration.py", never=("_LARGEST", "_SMALLEST", "_STEP", "error_gammas")),
    Target(
        "certificates/proven/problem.py",
        only=(
            *("Problem.unit_cost", "Problem.slack", "Problem.slope_error", "Problem._softmax_rounding"),
            *("Problem.reach", "Problem.feasible"),
        ),
    ),
    Target("certificates/proven/problem.py"),
    Target("certificates/aggregate.py"),
    Target("certificates/dual_values.py", only=("solve_gamma",)),
    Target("certificates/local_bounds.py", never=("LocalBounds._tell", "LocalBounds.probe")),
    Target("certificates/local_bounds.py", never=("LocalBoundsByLabel.probe",)),
    Target("certificates/batching.py"),
    Target("certificates/certificate.py", only=("Certificate._best", "Certificate.error_bound")),
    Target("certificates/population.py", never=("_FAR", "_ABOVE")),
    Target("certificates/certificate.py"),
    # What is certified by noise; who proposes coefficients, and which, does not matter.
    Target("smoothing/voting.py"),
    Target("smoothing/binomial.py"),
    Target("smoothing/coefficients.py", never=("_TOLERANCE", "_ROUNDS")),
    Target("smoothing/confidence.py"),
    Target("smoothing/sampling.py"),
    Target("smoothing/neyman_pearson.py", never=("_OVERSHOOT", "_TAIL")),
    Target("smoothing/sampling.py", never=("_ROOM", "_ROWS")),
    Target("smoothing/certificate.py", only=("Quantity", "SmoothedCertificate._check")),
    Target("smoothing/deployment.py", only=("Smoothed",)),
    Target("smoothing/_certify.py", only=("certify_smoothed", "_badness", "_scaled")),
    Target("rounding.py"),
    Target("norms.py"),
    Target("costs/base.py", only=("Cost.gap", "infinite_unless", "separable_response")),
    Target(
        "costs/quadratic.py",
        only=(
            "_Quadratic",
            "WeightedL2.gap",
            "WeightedL2.whiten",
            "Mahalanobis._power",
            "Mahalanobis.whiten",
        ),
    ),
    Target(
        "costs/lp.py",
        only=("_SquaredNorm.growth", "SquaredLp.strong_convexity", "SquaredSup.strong_convexity"),
    ),
    Target("costs/masked.py", only=("Masked.growth", "Masked.strong_convexity", "Masked.metric")),
    Target("costs/metric.py"),
)

TESTS = (
    "tests/smoothness",
    "tests/certificates",
    "tests/training/certified",
    "tests/costs",
    "tests/test_domains.py",
    "tests/test_rounding.py",
)
"""Where the tests are that must notice."""

NOT_TESTS = (
    "tests/bounds/test_mutants.py",
    *(f"tests/certificates/test_{name}.py" for name in ("code_digest", "kept", "verification")),
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
