"""How far to move, as given on the command line: a number, or ``from:RUN``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from certus._names import NORMS
from certus.attacks.evaluate import fair_epsilon
from certus.cli.output import messages
from certus.errors import ArgumentError, require
from certus.runs.directory import RunDirectory
from certus.runs.factory import own_model, settings_of
from certus.runs.loaded_run import open_trained, recorded_rho_hat


def read_norm(text: str) -> float:
    """1, 2 or inf."""
    require(text in NORMS, "norm", f"be one of {', '.join(NORMS)}", repr(text))
    return NORMS[text]


def read_epsilon(text: str, norm: str, data: str, standardize: bool, models: Sequence[str] = ()) -> float:
    """ε from a number, or from how far the WRM of a run moves its training data (eqn:fgm-fair).

    Args:
        data, standardize: what will be moved; a budget of other data would be in other units.
        models: among them the FILE.py:FACTORY of the run, if it has one.
    """
    p = read_norm(norm)
    if not text.startswith("from:"):
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(f"`epsilon` must be a number, or from:RUN; got {text!r}.") from None
    require(text != "from:", "epsilon", "name a run after from:", repr(text))
    run = RunDirectory.open(Path(text.removeprefix("from:")))
    settings = settings_of(run)
    same = (settings.data, settings.standardize) == (data, standardize)
    scaled = "" if settings.data != data else ", scaled otherwise"
    rule = f"come from a run on the same data, {data}"
    require(same, "epsilon", rule, f"{text}, which is on {settings.data}{scaled}")
    rho_hat = recorded_rho_hat(run, p)
    if rho_hat is not None:
        epsilon = math.sqrt(rho_hat)
    else:
        trained = open_trained(run, model=own_model(run, models))
        count = len(trained.data.train)
        messages.print(f"Measuring how far {trained.run.path} moves its {count} training samples.")
        epsilon = fair_epsilon(trained.wrm, trained.loss, trained.data.train, p)
    messages.print(
        f"epsilon = {epsilon:.4g} in the norm {norm}: the root mean square distance by which that run's wrm "
        "moves its training data (estimated)."
    )
    return epsilon
