"""What the commands import when they are called, imported beforehand: forks then start at once."""

from __future__ import annotations

import importlib
import pkgutil

import certus.cli

for module in pkgutil.iter_modules(certus.cli.__path__, "certus.cli."):
    importlib.import_module(module.name)
