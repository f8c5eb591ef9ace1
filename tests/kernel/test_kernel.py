"""The kernel stands alone, and does not search."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "src" / "certus" / "kernel"
FILES = sorted(KERNEL.glob("*.py"))
BARRED = ("torch.nn", "torch.fx", "torch.export", "torch.jit", "torch.optim")

LOOPS = {
    "__main__.py:table": "over the numbers that are printed",
    "check.py:_around": "over the labels, and the kinds of parabolas",
    "check.py:_bounded": "over batches of samples, and the given gamma",
    "check.py:_comparisons": "over the lines of a file",
    "check.py:_rates": "over the lines of a file",
    "check.py:_tangents": "over the kinds of parabolas",
    "error_rates.py:population_rate": "over the groups of rows",
    "rules.py:_gap_rules": "over the balls around the samples",
    "deployment.py:deviation": "over the nodes",
    "graph_files.py:_accept_parts": "over the parts of an operator on moves",
    "radial.py:_listed": "over parts of the listed combinations, to bound memory",
    "rows.py:cheapest_combinations": "over the columns",
    "rules.py:_over_rows": "over the fixed shares, and parts of the listed combinations",
    "rules.py:_row_error_costs": "over parts of the listed combinations",
    "rows.py:rows_of": "over the columns",
    "rows.py:with_columns": "over the given groups",
    "rules.py:over_labels": "over the labels",
    "graph.py:__post_init__": "over the nodes",
    "graph.py:_backward_block": "over the nodes of a block",
    "graph.py:_parted": "over the inputs of a join",
    "graph.py:_walk": "over the nodes",
    "graph.py:backward": "over the blocks",
    "graph.py:backward_error": "over the nodes",
    "graph.py:forward": "over the nodes",
    "max_pool.py:_spread": "over the axes",
    "max_pool.py:apply": "over the axes",
    "operators.py:__init__": "over the parts of a product",
    "operators.py:_prefix_norms": "over the parts of a product",
    "operators.py:act": "over the axes, or the parts of a product",
    "operators.py:amplify": "over the parts of a product",
    "operators.py:length_error": "over the parts of a product",
    "operators.py:transposed": "over the parts of a product",
    "passes.py:add": "over m and −m",
    "pointwise.py:_range": "over the listed extrema of a function",
    "pointwise.py:curvature_range": "over the listed kinks",
    "radial.py:_ends": "over the functions in a minimum",
    "radial.py:rival_radii": "over the balls around the samples",
    "radial.py:neighborhoods": "over the balls around the samples",
    "transport.py:_coupled": "over batches of a coupling",
    "tree_profiles.py:_proofs": "over the stored proofs",
    "tree_profiles.py:dual": "samples in parts, to bound memory; over the given gamma",
    "tree_profiles.py:proven_bounds": "over the stored proofs, with fixed columns and without",
    "tree_profiles.py:top": "rows in parts, to bound the memory of one table",
    "trees.py:boxes": "a level of the trees after the other",
    "trees.py:least_costs": "boxes in parts, to bound the memory of one table",
    "trees.py:leaves": "a level of the trees after the other",
    "smoothing.py:worst_failure": "scores in parts, to bound the memory of one table",
    "smoothing.py:poisson_binomial": "a recursion: one trial after the other",
    "smoothing.py:prove": "over the quantities of a certificate",
    "smoothing.py:upper_means": "one bound for each of a given list of designs",
}
"""Loops of the kernel, with their reasons: none searches."""


def imported(path: Path) -> set[str]:
    """Modules that a file imports, and modules of packages that it imports names from."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports by dots hide where they lead"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_kernel_imports_numpy_torch_and_the_standard_library(path: Path) -> None:
    allowed = {"numpy", "torch", *sys.stdlib_module_names}
    for name in imported(path):
        assert name.split(".")[0] in allowed or f"{name}.".startswith("certus.kernel."), name
        assert not f"{name}.".startswith(tuple(f"{barred}." for barred in BARRED)), name


def loops(path: Path) -> Iterator[str]:
    """file:function of each loop, comprehensions left out: they end with what they are given."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.For | ast.While):
                    yield f"{path.name}:{function.name}"


def test_every_loop_has_its_reason() -> None:
    assert {name for path in FILES for name in loops(path)} == LOOPS.keys()
