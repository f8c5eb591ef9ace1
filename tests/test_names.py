"""One word, one thing: no two classes, functions, constants, aliases or files of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from certus.cli.app import app

SOURCE = Path(__file__).parent.parent / "src" / "certus"
FILES = sorted(SOURCE.rglob("*.py"))

COMMANDS = SOURCE / "cli"
"""A command's file and function are named like the command, which may be that of what it calls."""

PACKAGED = {"download", "convert", "verify", "PACKAGE", "REQUIREMENT", "FOLDER", "EXPECTED"}
"""Every data set that is fetched has a ``Package``, and says under these names what goes into its fields."""


def test_no_two_public_names_are_alike() -> None:
    """Classes, functions, constants and aliases; what begins with an underscore is a file's own."""
    places = defaultdict(list)
    for path in FILES:
        for name in _defined(ast.parse(path.read_text())):
            command = path.parent == COMMANDS and name == path.stem
            packaged = path.parent.name == "data" and name in PACKAGED
            if not name.startswith("_") and not command and not packaged:
                places[name].append(str(path.relative_to(SOURCE)))
    assert len(places) > 400
    assert not {name: where for name, where in places.items() if len(set(where)) > 1}


def test_what_counts_as_a_name() -> None:
    """Also names that are assigned together, in pieces, or with a type."""
    text = "import a\nA = B = 1\nC, (D, *E) = x\nF: int = 2\nx.y = x[0] = 3\nclass G: H = 4\ndef i(): j = 5\n"
    assert sorted(_defined(ast.parse(text))) == list("ABCDEFGi")


def test_no_two_files_or_folders_share_a_name() -> None:
    """Except ``base.py``: what all the others of its folder are kinds of."""
    files = [path for path in FILES if not path.stem.startswith("__") and path.stem != "base"]
    places = defaultdict(list)
    for path in (*files, *{path.parent for path in FILES}):
        if path.parent != COMMANDS or path.stem not in _commands():
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert len(places) > 150
    assert not {name: where for name, where in places.items() if len(where) > 1}


def _defined(tree: ast.Module) -> list[str]:
    """What a file defines at its top, and does not import."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            found += [part.id for part in parts if isinstance(part.ctx, ast.Store)]
    return found


def _commands() -> set[str]:
    commands = (one.name for one in app.registered_commands if one.name)
    return {*commands, *(one.name for one in app.registered_groups if one.name)}
