"""Source code without comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]


def code(text: str) -> str:
    """Source code without comments, docstrings and blank lines; indentation is kept."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if words and isinstance(node.value.value, str):  # type: ignore[attr-defined]
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):  # type: ignore[attr-defined]
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())
