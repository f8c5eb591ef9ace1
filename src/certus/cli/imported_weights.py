"""``certus import``: weights that were trained elsewhere, checked, as a run directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import typer
from torch import Tensor

from certus.cli.idle import of_data, of_source, refuse_idle
from certus.cli.training_run import say_covered, show_run
from certus.errors import ArgumentError, require
from certus.losses import ModelLoss
from certus.models.registry import build_from
from certus.runs.directory import require_free, settled
from certus.runs.factory import load_data
from certus.runs.files import result_of
from certus.runs.settings import Settings
from certus.runs.train_run import start_run
from certus.storage.tensors import load_tensors
from certus.training import Fit
from certus.training.criterion_choice import default_criterion

_WRAPPERS = ("module.", "_orig_mod.")
_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def import_into(
    context: typer.Context, output: Path, weights: Path, settings: Settings, *, locking: bool, as_json: bool
) -> None:
    """Make the run and show what it reaches."""
    refuse_idle(context, of_source(settings.data))
    output = settled(output)
    require_free(output)
    settings = replace(settings, folder=str(Path.cwd()) if ":" in settings.data else "")
    loaded = load_data(settings)
    refuse_idle(context, of_data(loaded))
    built = build_from(settings.model, loaded, settings.seed)
    network = built.network
    own = network.state_dict()
    state = _bare_names(load_tensors(weights, require_digest=False)[0], set(own))
    for name, tensor in state.items():
        whole = name in own and not own[name].is_floating_point()  # such as a count of batches
        real = tensor.dtype in _REAL or (whole and tensor.dtype == own[name].dtype)
        require(real, "weights", "be of real floating-point numbers", f"{tensor.dtype} in {name}")
        usable = bool(torch.isfinite(tensor).all())
        require(usable, "weights", "be real and finite", f"{name}, which is not")
    try:
        network.load_state_dict(state)
    except RuntimeError as reason:
        lines = [line.strip() for line in str(reason).splitlines()[1:3]]
        raise ArgumentError(f"`weights` must fit the model {settings.model}; {' '.join(lines)}") from None
    loss = ModelLoss(network, default_criterion(loaded.train))
    result = result_of(Fit(network, [], None), loss, loaded)
    imported = (network.state_dict(), result)
    run = start_run(output, settings, loaded, imported=imported, sources=built.sources, locking=locking)
    say_covered(built.sources)
    show_run(run, result, as_json)


def _bare_names(state: dict[str, Tensor], own: set[str]) -> dict[str, Tensor]:
    """Without what ``DistributedDataParallel`` and ``torch.compile`` put in front of every name."""
    for prefix in _WRAPPERS:
        if state and not state.keys() & own and all(name.startswith(prefix) for name in state):
            return _bare_names({name.removeprefix(prefix): state[name] for name in state}, own)
    return state
