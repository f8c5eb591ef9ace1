"""``certus import``: make a run directory from weights that were trained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli.train import show_run, show_sources
from certus.errors import ArgumentError, require
from certus.runs.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor


@cli.command("import")
@cli.option("--weights", type=cli.PATH, required=True, help="safetensors file with the model's state dict.")
@cli.option("--data", required=True, help="Data set of the model, as for certus train.")
@cli.option("--model", metavar="NAME", required=True, help="Network name, or FILE.py:FACTORY to execute.")
@cli.option("--output", "-o", type=cli.PATH, required=True, help="Run directory to create.")
@cli.option("--seed", default=0, help="Seed of the data split.")
@cli.option("--target", help="Column of a csv: file to predict.", show_default="the last column")
@cli.option("--standardize/--no-standardize", default=True, help="Standardise features as in the training.")
@cli.no_lock_option
@cli.json_option
def import_weights(weights: Path, output: Path, no_lock: bool, as_json: bool, **options: Any) -> None:
    """Make a run directory from weights that were trained elsewhere.

    \b
    certus import --model net.py:Net --weights net.safetensors --data mnist -o net
    """
    import torch

    from certus.losses import ModelLoss, inferred_criterion
    from certus.models.networks import build_from
    from certus.runs.directory import require_new_run, resolve_parents
    from certus.runs.factory import load_data
    from certus.runs.files import measure_result
    from certus.runs.train_run import start_run
    from certus.storage.tensors import load_tensors
    from certus.training import Fit

    data = options["data"]
    settings = Settings(**options, method="erm", folder=str(Path.cwd()) if ":" in data else "")
    cli.refuse_unused(cli.unused_by_source(data))
    output = resolve_parents(output)
    require_new_run(output)
    loaded = load_data(settings)
    cli.refuse_unused(cli.unused_by_data(loaded))
    built = build_from(settings.model, loaded, settings.seed)
    network, own = built.network, built.network.state_dict()
    state = _without_wrappers(load_tensors(weights, require_digest=False)[0], set(own))
    real_types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name, tensor in state.items():
        counter = name in own and not own[name].is_floating_point()  # such as a number of batches
        real = tensor.dtype in real_types or (counter and tensor.dtype == own[name].dtype)
        require(real, "weights", "be floating-point tensors of real numbers", f"{tensor.dtype} in {name}")
        finite = bool(torch.isfinite(tensor).all())
        require(finite, "weights", "be finite", f"NaN or infinity in {name}")
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:3]]
        raise ArgumentError(f"`weights` must fit the model {settings.model}; {' '.join(lines)}") from None
    loss = ModelLoss(network, inferred_criterion(loaded.train.targets))
    result = measure_result(Fit(network, [], None), loss, loaded)
    imported = (network.state_dict(), result)
    run = start_run(output, settings, loaded, imported=imported, sources=built.sources, locking=not no_lock)
    show_sources(built.sources)
    show_run(run, result, as_json)


def _without_wrappers(state: dict[str, Tensor], own: set[str]) -> dict[str, Tensor]:
    """Remove the prefixes that ``DistributedDataParallel`` and ``torch.compile`` put before names."""
    for prefix in ("module.", "_orig_mod."):
        if state and not state.keys() & own and all(name.startswith(prefix) for name in state):
            return _without_wrappers({name.removeprefix(prefix): state[name] for name in state}, own)
    return state
