"""Source files that other files import, name by name, and their code without comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def closure(start: list[Path]) -> list[Path]:
    """Some files and all that they import, in order."""
    found: set[Path] = set()
    waiting: list[Path | None] = [*start]
    while waiting:
        path = waiting.pop()
        if path is not None and path not in found:
            found.add(path)
            waiting += [_home(module, name) for module, name in _imports(path)]
    return sorted(found)


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


@cache
def _imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of all that a file imports from certus."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [(node.module or "", node) for node in found if (node.module or "").startswith("certus")]
    return [(module, alias.name) for module, node in ours for alias in node.names]


def _home(module: str, name: str) -> Path | None:
    """The file that defines a name: a module itself, or what the ``__init__`` of a package takes it from."""
    if (own := _file(f"{module}.{name}")) is not None:
        return own
    path = _file(module)
    if path is not None and path.name == "__init__.py":
        for source, other in _imports(path):
            if other == name:
                return _home(source, name)
    return path


def _file(module: str) -> Path | None:
    base = ROOT / "src" / Path(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            return path
    return None
