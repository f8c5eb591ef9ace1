"""The layers of the package: a part imports parts of earlier layers, and parts to its left in its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TypeGuard

import pytest

from certus.attacks import Foolbox, Torchattacks

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "certus"

LAYERS = [
    "kernel errors _names _compiled _defaults _epoch_metrics _format _progress _tensor norms storage "
    "table_options _render",
    "requirements _eval_mode data domains layers losses costs _validation",
    "inner bounds attacks",
    "certificates smoothing datasets models training",
    "runs monitoring estimators mdp",
    "display",
    "cli",
]
"""From the vocabulary to the command line."""

ORDER = " ".join(LAYERS).split()

EXCEPTIONS = {("_render", "display")}
"""A result shows itself: ``_render`` imports ``display`` when it is printed or plotted."""

FILES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__")]


def imports(path: Path) -> set[str]:
    """Parts of certus that a file imports, inside functions and for types too."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "certus":
            modules |= {f"certus.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    names = [module.split(".") for module in modules]
    return {name[1] for name in names if name[0] == "certus" and len(name) > 1} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upwards(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for part in imports(path) - {own}:
        assert ORDER.index(part) < ORDER.index(own) or (own, part) in EXCEPTIONS, f"{own} imports {part}"


def test_nothing_installed_imports_the_repository() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {module.split(".")[0] for module in modules}
            assert not roots & {"studies", "tools", "tests", "benchmarks", "examples"}, path


def test_no_file_imports_by_a_computed_name() -> None:
    """A module that is imported by a string escapes the tests above."""
    hidden = {str(path.relative_to(SOURCE)) for path in FILES if "import_module(" in path.read_text()}
    # ``optional_import``; names of their own parts
    assert hidden == {"errors.py", "runs/__init__.py", "datasets/__init__.py"}
    calls = [node for path in FILES for node in ast.walk(ast.parse(path.read_text())) if _is_optional(node)]
    names = [name.value for call in calls if isinstance(name := call.args[0], ast.Constant)]
    assert len(calls) - len(names) == 1  # of attacks/adapters.py, for the two libraries below
    assert {str(name).split(".")[0] for name in names} <= OPTIONAL
    assert {Foolbox.library, Torchattacks.library} == {"foolbox", "torchattacks"}


OPTIONAL = {"PIL", "distributed", "gymnasium", "pandas", "pyarrow"}
"""Packages that are imported by a string."""


def _is_optional(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "optional_import"


def test_the_page_shows_the_layers() -> None:
    """docs/architecture.md names the parts of every layer in this order."""
    picture = (ROOT / "docs" / "architecture.md").read_text().split("```")[1].split()
    assert [word for word in picture if word in ORDER] == ORDER


def test_the_page_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 30
    assert [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []
