"""How far to move, as given on the command line: a number, or ``from:RUN``."""

from __future__ import annotations

import math
from pathlib import Path

from certus.attacks.budgets import fair_epsilon
from certus.cli.output import messages
from certus.costs import SquaredL2
from certus.errors import ArgumentError, require
from certus.runs.directory import RunDirectory
from certus.runs.execute import NORMS
from certus.runs.trained import open_trained


def read_norm(text: str) -> float:
    """1, 2 or inf."""
    require(text in NORMS, "norm", f"be one of {', '.join(NORMS)}", repr(text))
    return NORMS[text]


def read_epsilon(text: str, norm: str, model: str | None = None) -> float:
    """ε from a number, or from how far the WRM of a run moves its training data (eqn:fgm-fair)."""
    p = read_norm(norm)
    if not text.startswith("from:"):
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(f"`epsilon` must be a number, or from:RUN; got {text!r}.") from None
    trained = open_trained(RunDirectory.open(Path(text.removeprefix("from:"))), model=model)
    if p == 2 and trained.rho_hat is not None and isinstance(trained.cost, SquaredL2):
        epsilon = math.sqrt(trained.rho_hat)
    else:
        count = len(trained.data.train)
        messages.print(f"Measuring how far {trained.run.path} moves its {count} training samples.")
        epsilon = fair_epsilon(trained.wrm, trained.loss, trained.data.train, p)
    messages.print(f"epsilon = {epsilon:.4g} in the norm {norm} (estimated), as far as that run's wrm moves.")
    return epsilon
