"""Options that were typed although they cannot have an effect are refused: nobody should believe they had.

A command says, option by option, where it idles and why. What was left at its default is never refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import typer

from certus.datasets import SplitDataset
from certus.datasets.catalogue import TABLES
from certus.domains import Unbounded
from certus.errors import ArgumentError
from certus.runs.directory import RunDirectory
from certus.runs.factory import has_own_file, settings_of


def refuse_idle(context: typer.Context, idle: Mapping[str, str | None]) -> None:
    """Raise ``ArgumentError`` for an option that was typed and idles.

    Args:
        idle: parameter → where it has no effect and why, as in "for erm, which moves no inputs"; None where
            it has one.
    """
    for parameter in context.command.params:
        reason, source = idle.get(parameter.name or ""), context.get_parameter_source(parameter.name or "")
        if reason is not None and source is not None and source.name == "COMMANDLINE":
            flag, got = _as_typed(parameter, context.params[parameter.name or ""])
            raise ArgumentError(f"`{flag}` must be left out {reason}{got}.")


def _as_typed(parameter: Any, value: object) -> tuple[str, str]:
    """The option's name on the command line, and its value in words; a switch has none."""
    if isinstance(value, bool):
        names = parameter.opts if value or not parameter.secondary_opts else parameter.secondary_opts
        return names[0], ""
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return parameter.opts[0], f"; got {shown}"


def of_others(chosen: Collection[str], taken: Mapping[str, Collection[str]]) -> dict[str, str | None]:
    """What idles for some methods: the options that none of them takes.

    Args:
        taken: option → the methods that take it.

    >>> of_others(["fgsm"], {"steps": ("bim", "pgd"), "norm": ("fgsm", "pgd")})
    {'steps': 'for fgsm: it is for bim, pgd'}
    """
    return {
        option: f"for {', '.join(chosen)}: it is for {', '.join(methods)}"
        for option, methods in taken.items()
        if not set(methods) & set(chosen)
    }


def of_data(data: SplitDataset) -> dict[str, str | None]:
    """What idles for a data set."""
    unbounded = isinstance(data.domain, Unbounded)
    return {
        "clip": f"for {data.name}, whose inputs have no bounds" if unbounded else None,
        "standardize": None if data.feature_names else f"for {data.name}, which is no table",
    }


def of_labels(data: SplitDataset) -> dict[str, str | None]:
    """What idles without classes."""
    why = f"for {data.name}, a regression: there are no labels" if data.classes is None else None
    return dict.fromkeys(("label_price", "predicted", "epsilon", "class_weights"), why)


def of_source(spec: str) -> dict[str, str | None]:
    """What idles for data that are yet to be read."""
    why = None if spec.startswith(TABLES) else f"for {spec}: it is for csv:FILE and parquet:FILE"
    idle: dict[str, str | None] = dict.fromkeys(
        ("target", "drop", "categorical", "missing", "split", "split_by"), why
    )
    if not spec.startswith("csv:"):
        idle |= dict.fromkeys(("encoding", "separator"), why or f"for {spec}: it is for csv:FILE")
    return idle


def of_network(*runs: RunDirectory) -> dict[str, str | None]:
    """``--model`` names the file of a network; it idles for runs that have none."""
    if any(has_own_file(settings_of(run)) for run in runs):
        return {}
    named = ", ".join(f"{run.path} ({settings_of(run).model})" for run in runs)
    return {"model": f"for a network that certus builds itself: {named}"}
