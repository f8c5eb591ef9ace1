"""Options that commands share, options made from settings, and the refusal of options without effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from certus.errors import ArgumentError

if TYPE_CHECKING:
    from certus.datasets import SplitDataset
    from certus.runs.directory import RunDirectory


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]

NoLock = Annotated[
    bool, typer.Option("--no-lock", help="Do without locks, where the file system has none: take care alone.")
]

RunData = Annotated[
    str | None,
    typer.Option("--run-data", help="Where the run's own data are now, if they were moved, as csv:FILE."),
]

ModelFile = Annotated[
    str | None, typer.Option("--model", help="The run's own FILE.py:FACTORY, if it has one: it is executed.")
]

_Command = TypeVar("_Command", bound=Callable[..., None])


def options_of(
    settings: type, *, flags: Mapping[str, str] | None = None, types: Mapping[str, Any] | None = None
) -> Callable[[_Command], _Command]:
    """A decorator: the command's ``**options`` become one option for each field that has a word of help.

    Args:
        settings: a dataclass whose fields are ``Annotated[type, "help"]``, or ``Annotated[type, Option]``
            where the command line is all they are for.
        flags: field → its name on the command line, where that is another.
        types: field → its type on the command line, where that is another; its default is then None, for the
            command to decide.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True)
        kept = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in own.parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        hints = get_type_hints(settings, include_extras=True)
        made = [
            _parameter(field.name, hints[field.name], field.default, flags or {}, types or {})
            for field in fields(settings)
            if hasattr(hints[field.name], "__metadata__")
        ]
        # What the command adds to the settings, such as where to write, is listed behind them.
        first = [one for one in kept if one.default is one.empty or one.name in hints]
        last = [one for one in kept if one not in first]
        command.__signature__ = own.replace(parameters=[*first, *made, *last])  # type: ignore[attr-defined]  # which inspect reads
        return command

    return decorate


def _parameter(
    name: str, hint: Any, default: object, flags: Mapping[str, str], types: Mapping[str, Any]
) -> inspect.Parameter:
    kind, said = get_args(hint)
    option = said
    if isinstance(said, str):
        option = typer.Option(*([flags[name]] if name in flags else []), help=said)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if name in types else default,
        annotation=Annotated[types.get(name, kind), option],
    )


@dataclass(frozen=True)
class AttackOptions:
    """What was asked for, as it was typed."""

    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", help="fgsm, bim, pgd or wrm; several: the worst of them too."),
    ] = None
    norm: Annotated[
        str | None,
        typer.Option(
            help="Norm of fgsm, bim and pgd: 1, 2 or inf. Default: inf; without --epsilon, the run's own."
        ),
    ] = None
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            help="How far each sample may move; several make a sweep. from:RUN is as far as that run's wrm "
            "moves. By default as far as the run was trained for."
        ),
    ] = None
    gamma: Annotated[
        list[float] | None, typer.Option(help="Penalty of the attack wrm; several make a sweep.")
    ] = None
    relative: Annotated[
        bool, typer.Option("--relative", help="Epsilon in units of the mean length of an input.")
    ] = False
    steps: Annotated[
        int | None,
        typer.Option(help="Gradient steps of bim and pgd; 15 by default (20 for attack --nearest)."),
    ] = None
    step_size: Annotated[
        float | None, typer.Option(help="Of bim and pgd; 2.5 epsilon / steps by default.")
    ] = None
    restarts: Annotated[
        int | None, typer.Option(help="Random starts of pgd; the worst counts. 1 by default.")
    ] = None
    clip: Annotated[bool, typer.Option(help="Keep moved inputs where the data live, e.g. in [0, 1].")] = True
    samples: Annotated[
        int | None, typer.Option(help="How many test samples, chosen by the seed; all by default.")
    ] = None
    seed: Annotated[int, typer.Option(help="Chooses the samples, and random starts.")] = 0
    plot: Annotated[Path | None, typer.Option(help="Draw the sweep into this file (.png, .svg, .pdf).")] = (
        None
    )
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the rows: LaTeX (.tex), CSV (.csv), else JSON."),
    ] = None


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
    from certus.domains import Unbounded

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
    from certus.datasets.catalogue import TABLES

    why = None if spec.startswith(TABLES) else f"for {spec}: it is for csv:FILE and parquet:FILE"
    idle: dict[str, str | None] = dict.fromkeys(
        ("target", "drop", "categorical", "missing", "split", "split_by"), why
    )
    if not spec.startswith("csv:"):
        idle |= dict.fromkeys(("encoding", "separator"), why or f"for {spec}: it is for csv:FILE")
    return idle


def of_network(*runs: RunDirectory) -> dict[str, str | None]:
    """``--model`` names the file of a network; it idles for runs that have none."""
    from certus.runs.factory import has_own_file, read_settings

    if any(has_own_file(read_settings(run)) for run in runs):
        return {}
    named = ", ".join(f"{run.path} ({read_settings(run).model})" for run in runs)
    return {"model": f"for a network that certus builds itself: {named}"}
