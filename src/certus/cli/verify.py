"""``certus verify``: a certificate computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, ModelFile, RunData


def verify(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A certificate.json, or a smoothing.json.")],
    run: Annotated[
        Path | None, typer.Option(help="The run, if it is neither beside FILE nor where it was.")
    ] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Compute a certificate again, and fail if a number differs.

    \b
    certus verify runs/digits/certificate/certificate.json
    certus verify runs/noisy/certificate/smoothing.json

    Numbers may differ by 1e-9 of their size. Exit code 0: verified. 1: not verified, or the file is
    damaged. 2: nothing could be compared, because the certificate or its run is missing. 3: certus
    itself failed.
    """
    from certus.cli.certificate_again import verify_file

    verify_file(context, file, run, model, run_data, as_json=as_json)
