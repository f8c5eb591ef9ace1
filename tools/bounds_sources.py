"""Which files bounds rest on, and what their code was when ``BOUNDS_VERSION`` was last raised.

    python -m tools.bounds_sources      # after raising it: records the code of today

They are found by following imports from ``certify``, name by name: through the ``__init__`` of a package to
the file that defines the name. Comments, docstrings and blank lines are no part of the code.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

from certus.certificates.proven.version import BOUNDS_VERSION

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("bounds.json")
START = "certus.certificates._certify"
REMEDY = (
    "Raise BOUNDS_VERSION in src/certus/certificates/proven/version.py, then run "
    "`python -m tools.bounds_sources`; CONTRIBUTING.md says why."
)


def sources() -> list[str]:
    """The files, relative to the root of the repository, in order."""
    start = _file(START)
    assert start is not None
    return [str(path.relative_to(ROOT)) for path in closure([start])]


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


def state() -> dict[str, Any]:
    """The version and the code of today."""
    return {"version": BOUNDS_VERSION, "files": {name: _digest(name) for name in sources()}}


def changes(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Files whose code is not what was recorded."""
    first, second = recorded["files"], now["files"]
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


@cache
def _digest(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    return hashlib.sha256(code(text).encode()).hexdigest()[:16]


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


def main() -> None:
    now = state()
    if RECORD.exists():
        recorded = json.loads(RECORD.read_text())
        if (changed := changes(recorded, now)) and now["version"] <= recorded["version"]:
            sys.exit(f"Changed since version {recorded['version']}: {', '.join(changed)}. {REMEDY}")
    RECORD.write_text(json.dumps(now, indent=2) + "\n")
    print(f"Recorded: {len(now['files'])} files, version {now['version']} of the bounds.")


if __name__ == "__main__":
    main()
