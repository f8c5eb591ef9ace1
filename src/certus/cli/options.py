"""Options of a command taken from the settings that they become: each is written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

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
