"""One word, one thing: no two classes, functions or files of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from certus.cli.app import app

SOURCE = Path(__file__).parent.parent / "src" / "certus"
FILES = sorted(SOURCE.rglob("*.py"))

COMMANDS = SOURCE / "cli"
"""A command's file and function are named like the command, which may be that of what it calls."""

PACKAGED = {"convert", "verify"}
"""Every data set that is fetched has these two functions; they are its fields of ``Package``."""


def test_no_two_classes_or_functions_share_a_name() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            command = path.parent == COMMANDS and node.name == path.stem
            packaged = path.parent.name == "data" and node.name in PACKAGED
            if not command and not packaged:
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert len(places) > 300
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_files_or_folders_share_a_name() -> None:
    """Except ``base.py``: what all the others of its folder are kinds of."""
    files = [path for path in FILES if not path.stem.startswith("__") and path.stem != "base"]
    places = defaultdict(list)
    for path in (*files, *{path.parent for path in FILES}):
        if path.parent != COMMANDS or path.stem not in _commands():
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert len(places) > 150
    assert not {name: where for name, where in places.items() if len(where) > 1}


def _commands() -> set[str]:
    commands = (one.name for one in app.registered_commands if one.name)
    return {*commands, *(one.name for one in app.registered_groups if one.name)}
