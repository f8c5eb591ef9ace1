"""Errors that name an option as it is typed: ``--lr``, not ``learning_rate``; ``DATA``, not ``spec``."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

from certus.errors import ArgumentError, UnsupportedError

_OTHERWISE = {"spec": "data", "attack": "attacks", "model": "models", "gammas": "gamma"}
"""What the library calls a parameter → what commands call it."""


class TypedCommand(TyperCommand):
    """A command whose refusals speak of its own options."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ArgumentError, UnsupportedError) as reason:
            kind = type(reason)
            if kind not in (ArgumentError, UnsupportedError):  # about something else than an option
                raise
            names = {one.name or "": _typed(one) for one in self.params}
            raise kind(as_typed(str(reason), names)) from reason


def as_typed(message: str, names: dict[str, str]) -> str:
    """The message with every parameter in backticks as it is typed.

    >>> as_typed("`learning_rate` must be positive; got -1.", {"learning_rate": "--lr"})
    '`--lr` must be positive; got -1.'
    """

    def typed(found: re.Match[str]) -> str:
        name = found[1] if found[1] in names else _OTHERWISE.get(found[1], found[1])
        return f"`{names.get(name, found[1])}`"

    return re.sub(r"`(\w+)`", typed, message)


def _typed(parameter: Any) -> str:
    """``--lr`` of an option, ``DATA`` of an argument."""
    options = [one for one in parameter.opts if one.startswith("--")]
    return options[0] if options else str(parameter.name).upper()
