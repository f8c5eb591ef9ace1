"""The network of a run. A user's own file is never executed unless it is named again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from certus.datasets import DataSet
from certus.errors import ArgumentError, require
from certus.models import build_model
from certus.models.own_code import file_digest, is_own_file
from certus.models.registry import build_from
from certus.runs.building import load_data, settings_of
from certus.runs.directory import RunDirectory
from certus.runs.settings import Settings


def load_model(run: RunDirectory, *, model: str | None = None) -> nn.Module:
    """The trained network of a complete run, in eval mode.

    Args:
        model: the run's own ``FILE.py:FACTORY``, if it has one: it is executed.
    """
    settings = settings_of(run)
    network = rebuild_model(run, settings, load_data(settings), model)
    network.load_state_dict(run.weights())
    return network.eval()


def rebuild_model(run: RunDirectory, settings: Settings, data: DataSet, given: str | None) -> nn.Module:
    """The network of a run. A user's own file is never executed unless it is named again."""
    if not has_own_file(settings):
        rule = f"be left out: the run's own, {settings.model}, is no file"
        require(given in (None, settings.model), "model", rule, given)
        return build_model(settings.model, data, settings.seed)
    if given is None:
        raise ArgumentError(
            f"`model` must be given again, since the run's own, {settings.model}, would be executed: "
            f"add --model {settings.model} if you trust it."
        )
    rule = f"name the factory that the run was started with, {_factory(settings.model)}"
    require(_factory(given) == _factory(settings.model), "model", rule, given)
    # Compared while it is read: the bytes that are executed are the bytes that were compared.
    own, beside = run.settings["model_sha256"], run.settings["model_imports"] or {}
    known = {Path(given.rpartition(":")[0]).name: own} | beside
    return build_from(given, data, settings.seed, known=known).network


def has_own_file(settings: Settings) -> bool:
    """Whether the network is made by code of the user's, ``FILE.py:FACTORY``."""
    return is_own_file(settings.model)


def own_model(run: RunDirectory, given: Sequence[str]) -> str | None:
    """Which of several ``FILE.py:FACTORY`` is the run's own; the first if none is, for the error to name.

    None for a run that needs none.
    """
    settings = settings_of(run)
    if not has_own_file(settings):
        return None
    known = _factory(settings.model)
    fitting = (text for text in given if _factory(text) == known and _same_file(run, text))
    return next(fitting, given[0] if given else None)


def _same_file(run: RunDirectory, model: str) -> bool:
    return bool(file_digest(model) == run.settings["model_sha256"])


def _factory(model: str) -> str:
    return model.rpartition(":")[2]
