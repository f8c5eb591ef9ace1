"""Roundings of proofs have names and derivations in ``rounding.py``; no bare literal stands for one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.sources import ROOT
from tools.trusted_kernel import KERNEL

PACKAGE = ROOT / "src" / "certus"
SMALL = 1e-3

NO_ROUNDING = {
    "certificates/error_costs.py": {"_TOLERANCE"},  # where an ascent stops
    "certificates/engine.py": {"_LEAST"},  # γ: where a search ends
    "certificates/linear.py": {"_SOFTEST"},  # κ: where a search ends
    "certificates/dual_values.py": {"DEFAULT_ASCENT"},  # how far an ascent goes
    "certificates/confidence.py": {"_NARROW", "MARGINS"},  # where a search ends, and what is claimed
    "certificates/transport.py": {"_SOLVED"},  # what is assumed of POT
    "kernel/check.py": {"TOLERANCE"},  # by which other orders of summation may differ
    "kernel/deployment.py": {"_UNIT", "_LEAST"},  # of float32, derived where they are defined
    "kernel/smoothing.py": {"_SIGMAS"},  # the range of sigma
    "kernel/rules.py": {"_SHARE"},  # a choice, which is paid for
    "kernel/majorants.py": {"_CORNER"},  # a choice: the bound is valid for any value
    "kernel/losses.py": {"_LEAST"},  # a choice: the bound is valid for any value
    "kernel/norms.py": {"_UNDERFLOW"},  # underflow, derived where it is defined
    "kernel/operators.py": {"_LOST"},  # underflow, derived where it is used
    "kernel/pointwise.py": {"_BESIDE", "_ULP"},  # more peaks than needed are looked at
}
"""Small constants of other files, which are no roundings."""

ASSEMBLY = (
    *("dual_values", "local_bounds", "engine", "error_costs", "_certify", "linear", "certificate"),
    *("population", "confidence", "consistency", "transport"),
)
"""Files of ``certificates`` that combine what the kernel proves."""

FILES = [
    *(path for path in KERNEL.glob("*.py") if path.name != "rounding.py"),
    *(PACKAGE / "certificates" / f"{name}.py" for name in ASSEMBLY),
]


def small_literals(text: str) -> dict[str, list[int]]:
    """Lines of literals below 10⁻³ and of 2.0**-52 and the like, by the constant that they define, or ""."""
    found: dict[str, list[int]] = {}
    for top in ast.parse(text).body:
        named = isinstance(top, ast.Assign) and all(isinstance(target, ast.Name) for target in top.targets)
        name = top.targets[0].id if named else ""  # type: ignore[attr-defined]
        for node in ast.walk(top):
            if _is_small(node):
                found.setdefault(name, []).append(node.lineno)  # type: ignore[attr-defined]
    return found


def _is_small(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and 0 < node.value < SMALL
    power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    if not power or not isinstance(node.left, ast.Constant):  # type: ignore[attr-defined]
        return False
    return isinstance(node.right, ast.UnaryOp) and isinstance(node.right.op, ast.USub)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_bare_literal(path: Path) -> None:
    found = small_literals(path.read_text(encoding="utf-8"))
    assert not found.get(""), "Name it in rounding.py, with what it covers, or at the top of the file."
    assert found.keys() == NO_ROUNDING.get(str(path.relative_to(PACKAGE)), set())


def test_every_file_that_is_listed_exists() -> None:
    assert NO_ROUNDING.keys() <= {str(path.relative_to(PACKAGE)) for path in FILES}
    assert len(FILES) > 30


def test_constants_that_count_as_small() -> None:
    text = "A = 1e-9\nB, C = 1e-9, 2\ndef f(x, y=2.0**-52):\n    return x * (1 - 1e-12) + 0.5 + 10\n"
    assert small_literals(text) == {"A": [1], "": [2, 3, 4]}
