"""``certus import``: make a run directory from weights that were trained elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certus.cli.options import Json, NoLock, of_data, of_source, refuse_idle
from certus.errors import ArgumentError, require
from certus.runs.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor


def import_weights(
    context: typer.Context,
    weights: Annotated[Path, typer.Option(help="A safetensors file with the model's state dict.")],
    data: Annotated[str, typer.Option(help="The data that the model is for.")],
    model: Annotated[str, typer.Option(help="Its architecture: a name, or FILE.py:FACTORY.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run directory to make.")],
    seed: Annotated[int, typer.Option(help="Decides the split of the data.")] = 0,
    target: Annotated[str | None, typer.Option(help="Target column of a csv: file.")] = None,
    standardize: Annotated[bool, typer.Option(help="As the weights were trained.")] = True,
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Make a run directory of weights that were trained elsewhere.

    \b
    certus import --model net.py:Net --weights net.safetensors --data mnist -o net
    """

    asked = Settings(data=data, model=model, method="erm", seed=seed, target=target, standardize=standardize)
    import_into(context, output, weights, asked, locking=not no_lock, as_json=as_json)


_WRAPPERS = ("module.", "_orig_mod.")


def import_into(
    context: typer.Context, output: Path, weights: Path, settings: Settings, *, locking: bool, as_json: bool
) -> None:
    """Make the run and show what it reaches."""
    import torch

    from certus.cli.train import say_covered, show_run
    from certus.losses import ModelLoss, inferred_criterion
    from certus.models.registry import build_from
    from certus.runs.directory import require_new_run, resolve_parents
    from certus.runs.factory import load_data
    from certus.runs.files import measure_result
    from certus.runs.train_run import start_run
    from certus.storage.tensors import load_tensors
    from certus.training import Fit

    real_types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    refuse_idle(context, of_source(settings.data))
    output = resolve_parents(output)
    require_new_run(output)
    settings = replace(settings, folder=str(Path.cwd()) if ":" in settings.data else "")
    loaded = load_data(settings)
    refuse_idle(context, of_data(loaded))
    built = build_from(settings.model, loaded, settings.seed)
    network = built.network
    own = network.state_dict()
    state = _bare_names(load_tensors(weights, require_digest=False)[0], set(own))
    for name, tensor in state.items():
        whole = name in own and not own[name].is_floating_point()  # such as a count of batches
        real = tensor.dtype in real_types or (whole and tensor.dtype == own[name].dtype)
        require(real, "weights", "be of real floating-point numbers", f"{tensor.dtype} in {name}")
        usable = bool(torch.isfinite(tensor).all())
        require(usable, "weights", "be real and finite", f"{name}, which is not")
    try:
        network.load_state_dict(state)
    except RuntimeError as reason:
        lines = [line.strip() for line in str(reason).splitlines()[1:3]]
        raise ArgumentError(f"`weights` must fit the model {settings.model}; {' '.join(lines)}") from None
    loss = ModelLoss(network, inferred_criterion(loaded.train.targets))
    result = measure_result(Fit(network, [], None), loss, loaded)
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
