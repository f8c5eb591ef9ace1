"""The page of the trusted kernel: its files in an order to read them, with line counts.

python -m tools.trusted_kernel      # writes docs/trusted_kernel.md anew
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.sources import ROOT, code

PAGE = ROOT / "docs" / "trusted_kernel.md"
KERNEL = ROOT / "src" / "certus" / "kernel"
MEASURED = ROOT / "benchmarks" / "results" / "kernel_rules.json"

PARTS = {
    "Arithmetic and norms": ("evidence", "rounding", "norms"),
    "The network": (
        *("passes", "operators", "pointwise", "max_pool", "groups", "graph"),
        *("losses", "smoothness", "deployment"),
    ),
    "The inner problem": ("costs", "problem", "majorants", "radial", "rows", "rules"),
    "Tree ensembles": ("trees", "tree_profiles"),
    "Means, error rates and populations": (
        *("transport", "binomial", "concentration", "error_rates", "statement", "smoothing"),
    ),
    "Files": ("files", "check", "__main__"),
}
"""Heading → files, in an order to read them."""


@dataclass(frozen=True)
class OptionalRule:
    """What could be left out of the kernel.

    Attributes:
        parts: files, or file.name of what it alone needs; lines inside other functions are not counted.
        cost: what would be lost, in words; rule: its name in ``benchmarks.kernel_rules``, if it is measured.
    """

    name: str
    parts: tuple[str, ...]
    cost: str = ""
    rule: str = ""


OPTIONAL = (
    OptionalRule("The gap at a proposed point", ("rules._gap_rules", "costs.Cost.gap"), rule="gap"),
    OptionalRule(
        "The radial rule",
        ("radial.Profile.rings", "radial.Profile._beyond", "radial._majorants", "radial._ends"),
        "certified radii stay; ",
        "rings",
    ),
    OptionalRule(
        "Bounds on balls",
        ("smoothness.Smoothness.bound", "smoothness.Smoothness._own_margins", "smoothness._margin_values"),
        "no gap rule where 2γ ≤ L⁺; ",
        "balls",
    ),
    OptionalRule(
        "Parabolas above margins",
        (
            *("majorants.Tangents", "majorants.Parabolas", "majorants.parabolas", "majorants._Start"),
            *("majorants.Constants.beside",),
        ),
        rule="parabolas",
    ),
    OptionalRule(
        "… with the quadratic form of a hidden layer",
        ("majorants.hidden_layer", "majorants._spread", "majorants._Start.shaped"),
        rule="hidden layer",
    ),
    OptionalRule(
        "… of low rank",
        ("majorants._Factored", "majorants._factored"),
        "for wide layers of low rank, such as those behind principal components, the form takes too long; ",
        "low rank",
    ),
    OptionalRule("Softplus by a quadratic (Jaakkola and Jordan)", ("losses.Score",), rule="softplus"),
    OptionalRule("The sum rule for L⁺", ("pointwise.sum_rule", "losses.Softmax.combine"), rule="sum rule"),
    OptionalRule("The max rule", ("pointwise.max_rule", "smoothness.Smoothness._max_rule"), rule="max rule"),
    OptionalRule("… σ'' ≤ b(1 − σ'²)", (), "7 lines of the max rule; ", "arc"),
    OptionalRule("… σ'' = bσ'(1 − σ')", (), "7 lines of the max rule; ", "logistic"),
    OptionalRule(
        "The paper's corollary, corrected",
        ("losses.Softmax.corrected",),
        "and β, which all primitives carry; ",
        "corrected",
    ),
    OptionalRule("Two classes: one q in both terms", (), "7 lines of the sum rule; ", "two classes"),
    OptionalRule(
        "Eigenvalues of AᵀDA", ("pointwise.exact_curvature", "norms.checked_quadratic"), rule="eigenvalues"
    ),
    OptionalRule(
        "Norms of convolutions by frequency",
        ("norms.circulant_blocks", "operators.Convolution.check"),
        "√(‖A‖₁‖A‖_∞) instead; ",
        "frequencies",
    ),
    OptionalRule("Gradients without what Z forbids", ("problem.Problem.feasible",), rule="domain"),
    OptionalRule("Max-pooling", ("max_pool",), "networks with it have no bound"),
    OptionalRule("Sorting and lengths of groups", ("groups",), "1-Lipschitz networks have no bound"),
    OptionalRule(
        "float32 in use", ("deployment", "problem.Values.deployed"), "bounds are about real arithmetic alone"
    ),
    OptionalRule(
        "Products of operators",
        ("operators.Product", "operators._prefix_norms"),
        "no full matrix as a cost; no weights of a cost before a convolution but one for each channel",
    ),
    OptionalRule(
        "Operators along axes", ("operators.AxisProduct",), "average pooling, and linear layers of sequences"
    ),
    OptionalRule("Transposed convolutions", ("operators.Transposed",), "networks with them have no bound"),
    OptionalRule(
        "Joins of several nodes",
        (
            *("graph.Graph._backward_block", "graph.Graph._parted", "graph.Node.joined"),
            *("graph.Node.combined", "graph._joined_values", "graph._joined_bound", "graph._added"),
            "graph._summed",
        ),
        "residual networks, dense connections and inputs used twice have no bound",
    ),
    OptionalRule(
        "Whitening",
        ("problem.whitened", "problem._behind"),
        "costs with weights, masks or matrices have no bound; L2 and the sup-norm do",
    ),
    OptionalRule("Quadratic costs", ("costs.Quadratic",), "Mahalanobis costs have no bound"),
    OptionalRule("Claimed costs", ("costs.Claimed",), "a user's own cost has no bound, not even *assumed*"),
    OptionalRule(
        "Squared errors", ("losses.SquaredError", "smoothness.Smoothness._squared_error"), "regression"
    ),
    OptionalRule("Hinges", ("losses.Hinge",), "support vector machines"),
    OptionalRule("Prices of labels", ("rules.over_labels",), "labels never change"),
    OptionalRule(
        "Populations",
        ("statement.PopulationBounds", "concentration"),
        "no statement about more than the sample; smoothing needs `betting`",
    ),
    OptionalRule(
        "Merging statements about disjoint samples",
        (
            *("statement.Statement.merged", "statement.PopulationBounds.merged", "statement._mean"),
            *("statement._joined_costs", "statement._shared_gammas"),
        ),
        "certificates of parts of the data are not joined",
    ),
    OptionalRule(
        "Errors by class",
        ("error_rates.ClassCosts", "error_rates.complement"),
        "no recall, false-positive rate or cost of a confusion",
    ),
    OptionalRule(
        "Changes of a category",
        ("statement.ChangeBounds", "statement._at"),
        "`certus sensitivity` proves nothing of categories",
    ),
    OptionalRule(
        "Rows of a table", ("rows",), "categories of tables move in parts, at parts of their prices"
    ),
    OptionalRule("Transport between samples", ("transport",), "`certus monitor` proves nothing"),
    OptionalRule("Smoothing", ("smoothing", "binomial"), "certificates of models that cannot be read"),
    OptionalRule("Tree ensembles", ("trees", "tree_profiles"), "certificates of trees, forests and boosting"),
    OptionalRule(
        "Files and their check", ("files", "check", "__main__"), "`python -m certus.kernel`, `certus verify`"
    ),
)

_LATER = (
    *("Tree ensembles", "Rows of a table", "Transport between samples", "Errors by class"),
    *("Sorting and lengths of groups", "float32 in use"),
)
_FEATURES = ("Smoothing", "Populations", "Files and their check")
_IDLE = "nothing above 0.1% on these networks"
_LEAVING_OUT = """\
## Rules, their size, and what leaving each out costs

Bounds hold without any of these; they would be looser, or there would be none. *Lines* are those of the
functions, classes or files that it alone needs, docstrings included; those that others share are not counted.
Ratios are of upper sides without it to those with it, the largest at two ρ of seven small models
(`python -m benchmarks.kernel_rules`): of the loss, of the error rate, and of L⁺, the bound on the curvature
of the loss everywhere, which decides where the inner problem is concave and certified training works. A row
without numbers is a feature.

A reader should need at most 3,500 lines in 25 files, beside tree ensembles, rows of tables, transport, errors
by class, sorted groups and float32. These six have {later:,} lines, and all else {own:,}, which is more. The
rules that change no bound of these networks by more than 0.1% have {idle:,} lines, and all measured rules
{measured:,}; without these, smoothing, populations, and files with their check, {rest:,} lines would remain.
They are what any network needs: arithmetic, primitives and their passes, costs, losses, values with rounding,
and statements.
"""

_INTRODUCTION = """\
# What a proven number rests on

Everything outside of `src/certus/kernel/` proposes: readers write graphs, ascents and attacks find points,
eigenvalues and bisections suggest constants. The kernel checks a proposal and returns a bound, or refuses it
(`Refused`). A foolish proposal makes a bound loose, never wrong.

The kernel imports NumPy, tensor functions of PyTorch and the standard library, and nothing else of certus; a
test says so, and another one lists its loops with their reasons: none searches. It rests on float64
arithmetic as IEEE 754 defines it, and on NumPy and PyTorch computing sums, products, elementary functions and
Fourier transforms as accurately as `rounding.py` assumes. Eigenvalues are never trusted: a claimed norm or
eigenvalue is verified by a Cholesky factorisation (`norms.py`).

What the kernel cannot check:

- that the graph, in memory or in a file, computes the caller's model. `bounds/equivalence.py` compares both,
  near and far, at every certified row and at every attained point;
- the constants of a user's own layer rule, activation or cost: these are named as assumptions;
- that samples are independent draws that nothing was tuned on, for a statement with a confidence;
- that noise is Gaussian and exact, and that a model answers the same when it is asked again, for smoothing.

`certificates/`, `smoothing/` and `bounds/` call the kernel. What it returns is marked (`evidence.py`): only a
marked `Statement` is *proven*, or *assumed* under names; one that is constructed elsewhere, altered or read
from a file is *stated*. A test searches the tree for other constructions, and allows none.

*Lines* counts everything; *code* leaves out comments, docstrings and blank lines. This page is written by
`python -m tools.trusted_kernel`; a test compares it with the sources.
"""


def page() -> str:
    """The page as it should be today."""
    files = sorted(KERNEL.glob("*.py"))
    whole, bare = (sum(numbers) for numbers in zip(*map(_counts, files), strict=True))
    lines = [_INTRODUCTION, f"In all {len(files)} files, {whole:,} lines, {bare:,} of code.\n"]
    for heading, names in PARTS.items():
        lines += [f"## {heading}\n", "| file | lines | code | contents |", "|---|---|---|---|"]
        lines += [_row(KERNEL / f"{name}.py") for name in names]
        lines.append("")
    measured = [each for each in OPTIONAL if each.rule]
    later = len(_covered([each for each in OPTIONAL if each.name in _LATER]))
    apart = _covered(measured + [each for each in OPTIONAL if each.name in (*_LATER, *_FEATURES)])
    words = _LEAVING_OUT.format(
        later=later,
        own=whole - later,
        idle=len(_covered([each for each in measured if _IDLE in _loss(each)])),
        measured=len(_covered(measured)),
        rest=whole - len(apart),
    )
    lines += [words, "| rule | lines | without it |", "|---|---|---|"]
    lines += [f"| {each.name} | {_size(each)} | {_loss(each)} |" for each in OPTIONAL]
    return "\n".join([*lines, ""])


def _size(optional: OptionalRule) -> str:
    """The number of its lines; blank where all are inside other functions."""
    return f"{len(_covered([optional]))}" if optional.parts else ""


def _covered(optionals: list[OptionalRule]) -> set[tuple[str, int]]:
    """Files and numbers of the lines of all parts, each once."""
    parts = [part for optional in optionals for part in optional.parts]
    return {(part.split(".")[0], line) for part in parts for line in _lines(part)}


def _lines(part: str) -> Iterator[int]:
    """Numbers of the lines of a file, or of one definition in it."""
    file, *names = part.split(".")
    text = (KERNEL / f"{file}.py").read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    first, last = 1, len(text.splitlines())
    for name in names:
        node = next(each for each in ast.iter_child_nodes(node) if getattr(each, "name", "") == name)
        assert isinstance(node, ast.ClassDef | ast.FunctionDef)
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        last = node.end_lineno or first
    yield from range(first, last + 1)


def _loss(optional: OptionalRule) -> str:
    """The words, and the measured ratios above 1.001."""
    if not optional.rule:
        return optional.cost
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["networks"]
    kinds = {"loss": "loss", "error": "error rate", "curvature": "L⁺"}
    ratios = {
        words: {network: rules[optional.rule][kind] for network, rules in measured.items()}
        for kind, words in kinds.items()
    }
    seen = [
        f"{words} × {max(own.values()):.4g} ({max(own, key=lambda name: own[name])})"
        for words, own in ratios.items()
        if max(own.values()) > 1.001
    ]
    return optional.cost + ("; ".join(seen) or _IDLE)


def _counts(path: Path) -> tuple[int, int]:
    text = path.read_text(encoding="utf-8")
    return len(text.splitlines()), len(code(text).splitlines())


def _row(path: Path) -> str:
    """Counts, and the first paragraph of the docstring on one line."""
    total, bare = _counts(path)
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    summary = " ".join(words.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| `{path.name}` | {total} | {bare} | {summary} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Written: {PAGE}")
