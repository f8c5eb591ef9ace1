"""Commands and options of the command line, on click.

A command lists its options in panels, names an option in errors as it is typed, and refuses options that
have no effect.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from certus._names import ATTACK_OPTIONS, GRADIENT_ATTACKS, NORMS, PAPER_NAMES
from certus.cli.output import (
    NOTHING_STORED,
    if_interrupted,
    require_file,
    require_picture,
    results_apart,
    same_place,
)
from certus.errors import ArgumentError, UnsupportedError, require, truncate
from certus.runs.settings import FLAGS, Settings, option_field
from certus.table_options import TABLES, TableOptions

if TYPE_CHECKING:
    from certus.datasets import SplitDataset
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import LoadedRun

_Function = TypeVar("_Function", bound=Callable[..., Any])

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic in the lowest supported version of click

_OTHER_NAMES = {"spec": "data", "gammas": "gamma", "by": "chunks", "n_jobs": "jobs"}
"""Parameters: library → command."""


class UserPath(click.Path):
    """A path in which a leading ~ is a home directory, as in ``--output=~/run``: shells leave it alone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        expanded = os.path.expanduser(text)
        if expanded.startswith("~"):
            self.fail(f"be a path of an existing user, or ./{text} if a name begins with ~", param, ctx)
        return super().convert(expanded, param, ctx)


class Budget(ParamType):
    """A number, or the text from:FILE."""

    name = "float"
    source = "FILE"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"FLOAT|from:{self.source}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.startswith("from:"):
            return value
        return click.FLOAT.convert(value, param, ctx)


class Radius(Budget):
    """A number, or the text from:RUN."""

    source = "RUN"


class Choice(click.Choice[str]):
    """One of several words, or the paper's name for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(PAPER_NAMES.get(value, value), param, ctx)


class _Parameter(click.Parameter):
    """A parameter whose errors name it as it is typed."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        name = typed_name(self)
        texts = value if isinstance(value, list | tuple) else [value]
        for text in texts:
            if isinstance(text, str):
                require(text != "" or self.default == "", name, "not be empty", "''")
                require("\0" not in text, name, "have no NUL byte", repr(text))
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            rules = {"integer": "be a whole number", "float": "be a number"}
            rule = rules.get(self.type.name, error.message)
            if isinstance(self.type, Budget):
                rule = f"be a number, or from:{self.type.source}"
            if isinstance(self.type, click.Choice):
                rule = f"be one of {', '.join(self.type.choices)}"
            got = truncate(", ".join(map(repr, texts)))
            raise ArgumentError(with_nearest(f"`{name}` must {rule}; got {got}.")) from None


class Option(_Parameter, click.Option):
    """An option in a panel of ``--help``."""

    def __init__(self, *arguments: Any, panel: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panel = panel

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the default as it is: without the brackets that click puts around one in words, and without
        an empty one."""
        extra = super().get_help_extra(ctx)
        if self.default == "":
            extra.pop("default", None)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra


class Argument(_Parameter, click.Argument):
    """A positional argument."""


PATH = UserPath(path_type=Path)
option = functools.partial(click.option, cls=Option)
argument = functools.partial(click.argument, cls=Argument)


def panel(title: str) -> Callable[[_Function], _Function]:
    """Put the options below, as far as the next panel, under a heading of ``--help``."""

    def decorate(function: _Function) -> _Function:
        for parameter in getattr(function, "__click_params__", ()):
            if isinstance(parameter, Option):
                parameter.panel = parameter.panel or title
        return function

    return decorate


# --- Commands -----------------------------------------------------------------------------------------


def _write_panels(formatter: click.HelpFormatter, panels: Mapping[str, list[tuple[str, str]]]) -> None:
    for panel, records in panels.items():
        with formatter.section(panel):
            formatter.write_dl(records)


class Command(click.Command):
    """A command with its options in panels, and with refusals in terms of its own options. Options without a
    panel are in the last."""

    def __init__(self, *arguments: Any, panels: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        named = dict.fromkeys(getattr(parameter, "panel", "") for parameter in self.params)
        self.panels = panels or [*filter(None, named)] or ["Options"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in self.panels}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                rows[getattr(parameter, "panel", "") or self.panels[-1]].append(record)
        _write_panels(formatter, rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with results_apart(), if_interrupted(lambda: NOTHING_STORED):
                return super().invoke(ctx)
        except (ArgumentError, UnsupportedError) as error:
            if type(error) not in (ArgumentError, UnsupportedError):  # not about an option
                raise
            message = re.sub(r"`(\w+)`", lambda name: f"`{flag_of(ctx, name[1])}`", str(error))
            raise type(error)(with_nearest(message)) from error


class Group(click.Group):
    """Commands in panels, in the order in which they were added."""

    command_class = Command

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panels: dict[str, str] = {}

    def add_panel(self, panel: str, *commands: click.Command) -> None:
        """Add commands to a panel of ``--help``."""
        for member in commands:
            self.add_command(member)
            self.panels[member.name or ""] = panel

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        widest = max(map(len, self.commands))
        for name, member in self.commands.items():
            record = name.ljust(widest), (member.help or "").partition("\n")[0]
            rows.setdefault(self.panels.get(name, "Commands"), []).append(record)
        _write_panels(formatter, rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = _nearest(name, self.commands)
            remedy = f"Did you mean '{near}'?" if near else f"`{ctx.command_path} --help` lists them."
            ctx.fail(f"No such command '{name}'. {remedy}")
        return super().resolve_command(ctx, args)


command = functools.partial(click.command, cls=Command)


def typed_name(parameter: click.Parameter) -> str:
    """Return ``--lr`` for an option, ``DATA`` for an argument."""
    return next((flag for flag in parameter.opts if flag.startswith("--")), (parameter.name or "").upper())


def flag_of(context: click.Context, name: str) -> str:
    """Return a parameter of the library as it is typed; its name if the command has none."""
    names = (name, _OTHER_NAMES.get(name), f"--{name.replace('_', '-')}")
    for parameter in context.command.params:
        if parameter.name in names or typed_name(parameter) in names:
            return typed_name(parameter)
    return name


def with_nearest(message: str) -> str:
    """Return the message with the nearest of the choices that it lists, if one is near.

    >>> with_nearest("`--split` must be one of train, test; got 'tset'.")
    "`--split` must be one of train, test; got 'tset'. Did you mean test?"
    """
    parts = re.fullmatch(r"`[^`]+` must be (?:all, or )?(?:one of )?(.+); got '([^']+)'\.", message)
    choices = re.split(r", or |, | or ", parts[1]) if parts else []
    if parts is None or len(choices) < 2:
        return message
    near = _nearest(parts[2], [choice for choice in choices if " " not in choice])
    return f"{message} Did you mean {near}?" if near else message


def _nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that differs by about one letter in three, such as two that changed places."""
    return next(iter(difflib.get_close_matches(word, choices, 1, cutoff=0.66)), None)


# --- Options that commands share ----------------------------------------------------------------------

json_option = option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
jobs_option = option(
    "--jobs",
    type=int,
    default=1,
    metavar="K",
    help="Number of worker processes; -1 for one per core. The result is the same for any number.",
)
cluster_option = option(
    "--cluster", metavar="tcp://HOST:8786", help="Use the workers of this Dask scheduler in place of --jobs."
)
no_lock_option = option(
    "--no-lock",
    is_flag=True,
    help="Disable file locking. Make sure that no other process writes to the same folder.",
)
run_data_option = option(
    "--run-data", metavar="DATA", help="New location of the run's own data, such as csv:FILE, if moved."
)
_BUILDS = "File and function that build the network of a run"
model_option = option("--model", metavar="FILE.py:FACTORY", help=f"{_BUILDS}. The file is executed.")
models_option = option(
    "--model",
    "models",
    metavar="FILE.py:FACTORY",
    multiple=True,
    help=f"{_BUILDS}; may be repeated. The file is executed.",
)
allow_code_option = option(
    "--allow-code", is_flag=True, help="Load a tree model that is a pickle or joblib file: it executes code."
)
tensorboard_option = option(
    "--tensorboard", type=PATH, metavar="DIR", help="Log metrics of each epoch for TensorBoard, in DIR/RUN."
)


@dataclass(frozen=True)
class TypedRun:
    """RUN, ``--model`` and ``--run-data`` of a command."""

    path: Path
    model: str | None
    data: str | None

    def open(self) -> RunDirectory:
        """Open the directory; raise ``ArgumentError`` for a ``--model`` that it does not need."""
        from certus.models.own_code import is_own_file
        from certus.runs.directory import RunDirectory
        from certus.runs.factory import read_settings

        opened = RunDirectory.open(self.path, data=self.data)
        settings = read_settings(opened)
        if not is_own_file(settings.model):
            network = f"{self.path} ({settings.model})"
            refuse_unused({"model": f"for a network that certus builds itself: {network}"})
        return opened

    def load(self) -> LoadedRun:
        """Open the directory, and load the network and the data of a complete run."""
        from certus.runs.loaded_run import open_run

        return open_run(self.open(), model=self.model)


def takes_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add RUN, ``--model`` and ``--run-data`` to a command, which takes them as one ``run: TypedRun``."""

    @functools.wraps(function)
    def command(*, run: Path, model: str | None, run_data: str | None, **others: Any) -> Any:
        return function(run=TypedRun(run, model, run_data), **others)

    return argument("run", type=PATH)(model_option(run_data_option(command)))


def options_of(
    settings: type, *, types: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> Callable[[_Function], _Function]:
    """Return a decorator that adds an option for each field of a dataclass that ``option_field`` describes,
    or for some of them; ``types`` are other types than those of the fields. Where the default is in words, it
    is None."""
    kinds = get_type_hints(settings) | dict(types or {})

    def decorate(function: _Function) -> _Function:
        for field in reversed(fields(settings)):
            if field.metadata and (only is None or field.name in only):
                function = _option(field, kinds[field.name])(function)
        return function

    return decorate


def _option(field: Field[Any], kind: Any) -> Callable[[_Function], _Function]:
    """Return the option of a field; a field that is True by default has ``--no-…`` beside it."""
    about, default = field.metadata, field.default
    flags = about["flags"] or (FLAGS.get(field.name, f"--{field.name.replace('_', '-')}"),)
    settings: dict[str, Any] = {"help": about["help"], "panel": about["panel"], "default": default}
    if get_origin(kind) is tuple:
        kind, _ = get_args(kind)
        settings |= {"multiple": True, "default": ()}
    elif about["default_text"]:
        settings["default"] = None
    if about["default_text"]:
        settings["show_default"] = about["default_text"]
    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
    if kind is bool:
        pair = f"{flags[0]}/--no-{flags[0][2:]}" if default else flags[0]
        return option(pair, field.name, is_flag=True, **settings)
    kind = Choice(about["choices"]) if about["choices"] else PATH if kind is Path else kind
    kind = kind() if isinstance(kind, type) and issubclass(kind, click.ParamType) else kind
    return option(*flags, field.name, type=kind, **settings)


reading_options = options_of(
    Settings, only=[field.name for field in fields(TableOptions) if field.name not in ("split", "split_by")]
)
"""The options of ``certus train`` that say how a table is read."""

_attack_option = functools.partial(option_field, "Attack")


@dataclass(frozen=True)
class AttackOptions:
    """Options of ``certus attack`` and ``certus compare``, as they were typed."""

    attacks: tuple[str, ...] = _attack_option(
        (),
        "Attack to run; may be repeated, and then the worst of all attacks is listed too.",
        default_text="pgd",
        flags=("--attack",),
        choices=(*GRADIENT_ATTACKS, "wrm"),
    )
    norm: str | None = _attack_option(
        None,
        "Norm of the perturbations of fgsm, bim and pgd.",
        default_text="inf; without --epsilon, the norm that the run was trained for",
        choices=tuple(NORMS),
    )
    epsilon: tuple[float | str, ...] = _attack_option(
        (),
        "Radius of the perturbations; may be repeated for a sweep. from:RUN is the root mean square distance "
        "by which the wrm training of RUN moves its data.",
        default_text="the epsilon or the root of the rho that the run was trained for",
    )
    gamma: tuple[float, ...] = _attack_option(
        (), "Penalty on transport of the attack wrm; may be repeated for a sweep."
    )
    relative: bool = _attack_option(False, "Multiply every epsilon by the mean norm of the training inputs.")
    steps: int | None = _attack_option(
        None, "Gradient steps of bim and pgd.", default_text="15; 20 with --nearest"
    )
    step_size: float | None = _attack_option(
        None, "Step size of bim and pgd.", default_text="2.5 * epsilon / steps"
    )
    restarts: int | None = _attack_option(
        None, "Random restarts of pgd; the worst result of each sample counts.", default_text="1"
    )
    clip: bool = _attack_option(True, "Keep perturbed inputs inside the domain of the data, such as [0, 1].")
    samples: int | None = option_field(
        "Samples", None, "Number of test samples, drawn at random.", default_text="all"
    )
    seed: int = option_field("Samples", 0, "Seed of the drawn samples and of random restarts.")
    plot: Path | None = option_field(
        "Run and output", None, "Picture of the sweep to write (.png, .svg or .pdf)."
    )
    output: Path | None = option_field(
        "Run and output",
        None,
        "File to write: LaTeX (.tex) or CSV (.csv) of the rows, otherwise JSON of everything.",
        flags=("--output", "-o"),
    )

    @property
    def chosen(self) -> list[str]:
        """The attacks to run, without repetitions."""
        return list(dict.fromkeys(self.attacks or ["pgd"]))

    def check(self, *, nearest: bool = False) -> None:
        """Raise ``ArgumentError`` for options without effect, and for files that could not be written."""
        if self.output is not None:
            require_file("--output", self.output)
        if self.plot is not None:
            require_picture("--plot", self.plot)
            apart = self.output is None or not same_place(self.output, self.plot)
            require(apart, "--plot", "be another file than --output", self.plot)
        if nearest:
            allowed = self.attacks in ((), ("wrm",))
            require(allowed, "attack", "be left out with --nearest, or be wrm", ", ".join(self.attacks))
            rule = "with --nearest, which searches all distances"
            refuse_unused(dict.fromkeys(("epsilon", "gamma", "plot", "relative", "step_size"), rule))
            if self.attacks:
                rule = "with --nearest --attack wrm, which searches for the largest gamma"
                refuse_unused(dict.fromkeys(("norm", "steps", "restarts"), rule))
            as_rows = self.output is not None and self.output.suffix.lower() in (".tex", ".csv")
            require(not as_rows, "--output", "be a JSON file with --nearest, which has no rows", self.output)
            return
        unused = unused_by_methods(self.chosen, ATTACK_OPTIONS | {"relative": ATTACK_OPTIONS["epsilon"]})
        if not self.epsilon:
            unused.setdefault("relative", "without --epsilon: the default is in units of the inputs")
        elif all(isinstance(typed, str) for typed in self.epsilon):
            unused["relative"] = "where epsilon comes from a run, in units of the inputs"
        if "pgd" not in self.chosen and self.samples is None:
            unused["seed"] = f"for {', '.join(self.chosen)} without --samples: nothing is random"
        refuse_unused(unused)


# --- Options without effect ---------------------------------------------------------------------------


def refuse_unused(unused: Mapping[str, str | None]) -> None:
    """Raise ``ArgumentError`` for an option that was typed although it has no effect, from a mapping of
    parameters to the reason, such as "for erm, which moves no inputs"; None if used."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        reason = unused.get(name)
        if reason is None or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value, flag, got = context.params[name], parameter.opts[0], ""
        if isinstance(value, bool):
            flag = parameter.secondary_opts[0] if parameter.secondary_opts and not value else flag
        else:
            got = f"; got {', '.join(map(str, value)) if isinstance(value, tuple) else value}"
        raise ArgumentError(f"`{flag}` must be left out {reason}{got}.")


def unused_by_methods(chosen: Collection[str], taken: Mapping[str, Collection[str]]) -> dict[str, str | None]:
    """Return the options that none of the chosen methods takes, from a mapping of options to their methods.

    >>> unused_by_methods(["fgsm"], {"steps": ("bim", "pgd"), "norm": ("fgsm", "pgd")})
    {'steps': 'for fgsm: it is for bim, pgd'}
    """
    return {
        option: f"for {', '.join(chosen)}: it is for {', '.join(methods)}"
        for option, methods in taken.items()
        if not set(methods) & set(chosen)
    }


def unused_by_data(data: SplitDataset) -> dict[str, str | None]:
    """Return the options without effect for a data set."""
    from certus.domains import Unbounded

    unbounded = isinstance(data.domain, Unbounded)
    return {
        "clip": f"for {data.name}, whose inputs have no bounds" if unbounded else None,
        "standardize": None if data.feature_names else f"for {data.name}, which is not a table",
    }


def unused_without_labels(data: SplitDataset) -> dict[str, str | None]:
    """Return the options without effect for a regression."""
    reason = f"for {data.name}, a regression: there are no labels" if data.classes is None else None
    return dict.fromkeys(("label_cost", "own_labels", "epsilon", "class_weights"), reason)


def unused_by_source(spec: str) -> dict[str, str | None]:
    """Return the options without effect for data that have not been read yet."""
    reason = None if spec.startswith(TABLES) else f"for {spec}: it is for csv:FILE and parquet:FILE"
    unused: dict[str, str | None] = {field.name: reason for field in fields(TableOptions)}
    if not spec.startswith("csv:"):
        unused |= dict.fromkeys(("encoding", "separator"), reason or f"for {spec}: it is for csv:FILE")
    return unused


_FILE_OPTIONS = ("encoding", "separator", "decimal", "thousands", "na", "date_format")
new_rows_options = options_of(Settings, only=_FILE_OPTIONS)
"""The options of a new table, which may be written otherwise than that of the run."""


def reading_of_new_rows(own: TableOptions, given: Mapping[str, Any]) -> TableOptions:
    """The options of a run's table with those that were typed for a new one."""
    typed = {name: value for name, value in given.items() if value not in (None, "")}
    return replace(own, **typed)
