"""All reproductions by name, in the paper's order; a file is imported when it is asked for."""

from __future__ import annotations

import importlib

from certus.errors import require
from certus.reproduce.reproduction import Reproduction

FILES = {
    "toy": "toy",
    "hardness": "hardness",
    "convergence": "convergence",
    "generalization": "generalization",
    "cartpole": "pole_agents",
}
"""Name on the command line → file of this folder."""


def reproduction(name: str) -> Reproduction:
    """The one of this name."""
    require(name in FILES, "NAME", f"be all, or one of {', '.join(FILES)}", repr(name))
    found = importlib.import_module(f"certus.reproduce.{FILES[name]}").REPRODUCTION
    assert isinstance(found, Reproduction)
    return found
