"""Options that several commands have: each is worded once."""

from __future__ import annotations

from typing import Annotated

import typer

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
