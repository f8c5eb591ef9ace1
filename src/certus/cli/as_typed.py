"""Errors that name an option as it is typed: ``--lr``, not ``learning_rate``; ``DATA``, not ``spec``.

They repeat the value that was typed, and name the choice that is nearest to it. What no option can mean is
refused here too, for all of them: nothing at all, and NUL bytes. A path may begin with ~ where the shell
leaves it alone, as in ``--output=~/runs/new``: that is a user's home, not a name.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from certus.cli.streams import results_apart
from certus.errors import ArgumentError, UnsupportedError, require, truncate

_OTHERWISE = {"spec": "data", "attack": "attacks", "model": "models", "gammas": "gamma"}
"""What the library calls a parameter → what commands call it."""


class TypedCommand(TyperCommand):
    """A command whose refusals speak of its own options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            one: Any = parameter
            if one.param_type_name == "argument":
                one.metavar = _typed(one)
            one.process_value = _checked(one, one.process_value)
            one.get_help_record = _plainly(one.get_help_record)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS] RUN...``, and ``[NAME]`` for what may be left out."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for parameter in self.params:
            one: Any = parameter
            if one.param_type_name == "argument":
                name = _typed(one) if one.required else f"[{_typed(one)}]"
                pieces.append(f"{name}..." if one.nargs != 1 else name)
        return pieces

    def invoke(self, ctx: Any) -> Any:
        try:
            with results_apart():
                return super().invoke(ctx)
        except (ArgumentError, UnsupportedError) as reason:
            kind = type(reason)
            if kind not in (ArgumentError, UnsupportedError):  # about something else than an option
                raise
            names = {one.name or "": _typed(one) for one in self.params}
            raise kind(with_nearest(as_typed(str(reason), names))) from reason


def as_typed(message: str, names: dict[str, str]) -> str:
    """The message with every parameter in backticks as it is typed.

    >>> as_typed("`learning_rate` must be positive; got -1.", {"learning_rate": "--lr"})
    '`--lr` must be positive; got -1.'
    """

    def typed(found: re.Match[str]) -> str:
        name = found[1] if found[1] in names else _OTHERWISE.get(found[1], found[1])
        return f"`{names.get(name, found[1])}`"

    return re.sub(r"`(\w+)`", typed, message)


def with_nearest(message: str) -> str:
    """The message with the choice that was probably meant, if it lists choices and one is near.

    >>> with_nearest("`--method` must be one of wrm, erm, pgd; got 'wmr'.")
    "`--method` must be one of wrm, erm, pgd; got 'wmr'. Did you mean wrm?"
    """
    found = re.fullmatch(r"`[^`]+` must be (?:all, or )?(?:one of )?(.+); got '([^']+)'\.", message)
    choices = re.split(r", or |, | or ", found[1]) if found else []
    if found is None or len(choices) < 2:
        return message
    near = difflib.get_close_matches(found[2], [one for one in choices if " " not in one], 1)
    return f"{message} Did you mean {near[0]}?" if near else message


def _typed(parameter: Any) -> str:
    """``--lr`` of an option, ``DATA`` of an argument."""
    options = [one for one in parameter.opts if one.startswith("--")]
    return options[0] if options else str(parameter.name).upper()


def _plainly(record: Callable[[Any], tuple[str, str] | None]) -> Callable[[Any], tuple[str, str] | None]:
    """A line of ``--help`` that says ``<float>``, not Python's type, of what may be given several times."""

    def told(context: Any) -> tuple[str, str] | None:
        line = record(context)
        if line is None:
            return None
        return re.sub(r"<list\[(\w+)\]>", lambda found: f"<{found[1].lower()}>", line[0]), line[1]

    return told


def _rule(refusal: str) -> str:
    """What typer wants of a value, in the words of certus.

    >>> _rule("Input should be a valid integer, unable to parse string as an integer")
    'be a whole number'
    """
    if "integer" in refusal:
        return "be a whole number"
    if "number" in refusal or "float" in refusal:
        return "be a number"
    return f"be valid ({refusal.rstrip('.')})"


def _checked(parameter: Any, process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """How a parameter processes what was typed, with a look at the text before and at paths behind."""
    name = _typed(parameter)
    is_path = getattr(getattr(parameter, "type", None), "name", "") == "path"  # in older typer, still a text
    may_be_empty = parameter.default == ""

    def checked(context: Any, value: Any) -> Any:
        several = isinstance(value, list | tuple)
        typed = value if several else [value]
        for text in typed:
            if isinstance(text, str):
                require(text != "" or may_be_empty, name, "not be empty", "''")
                require("\0" not in text, name, "have no NUL byte", repr(text))
        try:
            found = process(context, value)
        except typer.BadParameter as reason:
            if type(reason).__name__ == "MissingParameter":
                raise
            raise ArgumentError(
                f"`{name}` must {_rule(reason.message)}; got {truncate(', '.join(map(repr, typed)))}."
            ) from None
        if several and found is not None:
            return type(found)(map(at_home, typed, found))
        return at_home(value, found)

    def at_home(text: Any, read: Any) -> Any:
        """A path that was typed with ~ or ~user as the folder that it means; other values as they are."""
        if not (isinstance(text, str) and text.startswith("~") and (is_path or isinstance(read, Path))):
            return read
        expanded = os.path.expanduser(text)
        rule = f"be a path of a user that there is, or ./{text} where a name begins with ~"
        require(not expanded.startswith("~"), name, rule, text)
        return type(read)(expanded)

    return checked
