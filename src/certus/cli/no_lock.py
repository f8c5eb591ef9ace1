"""``--no-lock``, for every command that locks the folder it writes into."""

from __future__ import annotations

from typing import Annotated

import typer

NoLock = Annotated[
    bool, typer.Option("--no-lock", help="Do without locks, where the file system has none: take care alone.")
]
