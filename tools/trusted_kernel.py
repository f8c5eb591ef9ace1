"""The page of the trusted kernel: its files in an order to read them, with line counts.

python -m tools.trusted_kernel      # writes docs/trusted_kernel.md anew
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.sources import ROOT, code

PAGE = ROOT / "docs" / "trusted_kernel.md"
KERNEL = ROOT / "src" / "certus" / "kernel"

PARTS = {
    "Arithmetic and norms": ("evidence", "rounding", "norms"),
    "The network": (
        *("passes", "primitive", "operators", "pointwise", "max_pool", "curvature", "graph"),
        *("losses", "smoothness"),
    ),
    "The inner problem": ("costs", "problem", "majorants", "radial", "rules"),
    "Tree ensembles": ("trees", "tree_profiles"),
    "Means, error rates and populations": (
        *("knapsack", "binomial", "concentration", "statement", "smoothing"),
    ),
    "Files": ("files", "check", "__main__"),
}
"""Heading → files, in an order to read them."""

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
from a file is *stated*. A test searches the tree for other constructions; its list of exceptions shrinks.

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
    return "\n".join(lines)


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
