"""Training inside a run directory, as the command line does it: locked, watched, and shown at the end."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from certus._format import at_most
from certus.bounds.smoothness import format_assumptions
from certus.cli.interruption import if_interrupted
from certus.cli.output import console, messages, print_json, show_parts
from certus.cli.tensorboard import tensorboard_of
from certus.cli.verdict_words import show_verdict
from certus.display.tables import epoch_parts, reached_words
from certus.display.text import number
from certus.models.own_code import Sources
from certus.runs import RunLock
from certus.runs.checkpoint import position
from certus.runs.directory import CHECKPOINT, RunDirectory, withdraw
from certus.runs.factory import settings_of
from certus.runs.train_run import execute
from certus.storage.files import RunError
from certus.storage.write import LockError, WriteError
from certus.training.callbacks import ProgressBar


def make_fabric() -> Fabric:
    """One process, or those that torchrun has started."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu", devices=local, num_nodes=nodes
    )
    if local * nodes > 1:
        fabric.launch()
    return fabric


def carry_out(
    run: RunDirectory,
    fabric: Fabric,
    model: str | None,
    *,
    logs: Path | None,
    locking: bool,
    as_json: bool,
) -> None:
    """Train to the end, while no other process may, and show the result."""
    if fabric.global_rank != 0:
        execute(run, model=model, fabric=fabric)
        return
    watchers = tensorboard_of(logs, run.path)
    try:
        with (
            RunLock(run.path, locking=locking),
            ProgressBar(messages) as bar,
            if_interrupted(lambda: _kept(run)),
        ):
            execute(run, model=model, observers=[bar, *watchers], fabric=fabric)
    except WriteError as reason:
        if not (run.path / CHECKPOINT).exists():
            raise
        raise WriteError(f"{reason} {_kept(run)}") from None
    result = run.result
    assert result is not None
    show_run(run, result, as_json)


def carry_out_new(
    run: RunDirectory,
    fabric: Fabric,
    model: str | None,
    *,
    logs: Path | None,
    keep_folder: bool,
    locking: bool,
    as_json: bool,
) -> None:
    """``carry_out`` a run that was just made; if it fails before its first step is kept, nothing remains.

    Then the same command, mended, is not told that the folder is taken.
    """
    try:
        carry_out(run, fabric, model, logs=logs, locking=locking, as_json=as_json)
    except LockError:  # another process continues it
        raise
    except Exception as reason:
        full = isinstance(reason, WriteError) and (run.path / CHECKPOINT).exists()
        if fabric.global_rank == 0 and _is_untouched(run) and not full:
            withdraw(run.path, keep_folder=keep_folder)
        raise


def _is_untouched(run: RunDirectory) -> bool:
    try:
        return run.result is None and position(run.path / CHECKPOINT) == (0, 0)
    except RunError:
        return False


def _kept(run: RunDirectory) -> str:
    """What there is to go on from, and how."""
    try:
        (epoch, step), epochs = position(run.path / CHECKPOINT), settings_of(run).epochs
    except RunError as reason:
        return str(reason)
    done = f"{epoch} of {epochs} epochs" + (f" and {step} steps" if step else "")
    return f"{run.path} keeps {done}; `certus resume {run.path}` continues."


def say_covered(sources: Sources | None) -> None:
    """Which code of the user's the run is bound to."""
    if sources is None:
        return
    left = "".join(f", {name}" for name in sources.uncovered)
    messages.print(
        f"The run is bound to {', '.join(sources.files)} by sha256, not to installed packages{left}."
    )


def show_run(run: RunDirectory, result: dict[str, Any], as_json: bool) -> None:
    """A table of the last epochs, and what was measured at the end."""
    history = run.history
    if as_json:
        settings = asdict(settings_of(run))
        print_json({"run": str(run.path), "settings": settings, "history": history, "result": result})
        return
    show_parts(epoch_parts(history))
    if history:
        share = history[-1]["converged"]
        if share is not None and share < 0.5:
            messages.print(
                f"Only {share:.0%} of the inner problems converged: gamma is probably too small for the "
                "curvature of the loss, where the worst case may be unbounded. A larger gamma or a smaller "
                "rho may help."
            )
    words = [f"{name} {number(value)}" for name, value in result["test"].items()]
    console.print(f"On the unmoved test data: {', '.join(words)}.")
    show_verdict(result)
    level = result["level"]
    if level is not None:
        console.print(reached_words(level))
    if "smoothed" in result:
        console.print(_smoothed_words(result["smoothed"]))
    if "proof" in result:
        curvature, gamma = (at_most(result["proof"][name], 5) for name in ("curvature", "gamma"))
        evidence = result["proof"]["evidence"]
        console.print(
            f"Certified training ({evidence}): at the final weights the curvature of the loss is at most "
            f"{curvature} at every input, so that the inner problem is concave for every gamma above {gamma}."
        )
        if assumptions := result["proof"].get("assumptions"):
            console.print(format_assumptions(tuple(assumptions)))
    console.print(f"Run directory: {run.path}")


def _smoothed_words(told: dict[str, Any]) -> str:
    """Whether the exact smoothed inner problem is concave, and what the points are."""
    found = f"Inner problem with noise of sigma {told['sigma']:g} at gamma {told['gamma']:.4g}: "
    if told["threshold"] is None:
        found += "the loss is unbounded, so concavity is not proven (it can be with --loss bounded)"
    else:
        verb = "is" if told["concave"] else "is not proven to be"
        above = at_most(told["threshold"], 5)
        found += f"averaged over all noise, it {verb} strongly concave (proven for every gamma above {above})"
    return f"{found}; the moved points themselves are {told['points']}."
