"""``certus --help``: the commands by what they are for, and ``certus --version``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import certus

_FEW = 4
"""So many commands are named in a message."""


class NamedCommands(TyperGroup):
    """Says what commands there are where one is mistyped and none is near."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as reason:
            told: Any = reason
            if "No such command" in getattr(told, "message", "") and "Did you mean" not in told.message:
                known = self.list_commands(ctx)
                few = f"There are {', '.join(known[:-1])} and {known[-1]}." if len(known) <= _FEW else ""
                told.message = f"{told.message} {few or '`certus --help` lists them.'}"
            raise


class GroupedCommands(NamedCommands):
    """Lists the commands under the name of their group, each with one sentence that is never cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            sentence = (command.help or "").partition("\n")[0]
            groups.setdefault(command.rich_help_panel, []).append((name, sentence))
        widest = max(len(name) for rows in groups.values() for name, _ in rows)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), sentence) for name, sentence in rows])


def _say_version(asked: bool) -> None:
    if asked:
        print(f"certus {certus.__version__}")
        raise typer.Exit


def certus_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version.")
    ] = False,
) -> None:
    """Train models that hold up when the data moves, and prove by how much."""
