"""Import beforehand all that commands import when they are called, so that forks start at once."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import certus.cli

for module in pkgutil.iter_modules(certus.cli.__path__, "certus.cli."):
    file = importlib.import_module(module.name).__file__
    assert file is not None
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            importlib.import_module(node.module)
