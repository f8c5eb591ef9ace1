"""``certus merge``: one certificate from those of shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certus import errors
from certus._progress import counting_bar
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.certify_support import show_certificate, title_of, write_files
from certus.cli.output import messages

if TYPE_CHECKING:
    from certus.data import Samples


@cli.command("merge")
@cli.argument("parts", nargs=-1, required=True, type=cli.PATH)
@cli.option("--output", "-o", type=cli.PATH, required=True, help="Folder for the certificate.")
@cli.option("--run", type=cli.PATH, help="Run directory, if it is no longer where it was.")
@cli.option("--include-data", is_flag=True, help="Write the certified rows beside the certificate.")
@cli.model_option
@cli.run_data_option
@cli.json_option
def merge(
    parts: tuple[Path, ...],
    output: Path,
    run: Path | None,
    include_data: bool,
    model: str | None,
    run_data: str | None,
    as_json: bool,
) -> None:
    """Merge the certificates of shards into one.

    \b
    certus certify runs/digits --rho 0.01 --shard 1/3 -o part-1
    certus certify runs/digits --rho 0.01 --shard 2/3 -o part-2
    certus certify runs/digits --rho 0.01 --shard 3/3 -o part-3
    certus merge part-* -o certificate

    PARTS are the folders of all shards. The kernel proves every part again before it is merged, from the rows
    of the run or those beside the part. A shift may spend all of rho in one part, so the parts are merged at
    common values of gamma, and their errors in one knapsack.
    """
    from certus.certificates import Certificate, files
    from certus.certificates.merging import merge_certificates
    from certus.runs import directory
    from certus.runs.certification import certified_data, fingerprint, verify_for_run
    from certus.runs.settings import CertifySettings
    from certus.runs.verification import Statement, certified_folder
    from certus.storage.files import convert

    out.require_folder("--output", output)
    directory.require_owned_folder(directory.CERTIFICATE, "--output", output)
    paths = [part / "certificate.json" if part.is_dir() else part for part in parts]
    stated = [Statement.read(path) for path in paths]
    place = run or certified_folder(paths[0], stated[0].run, stated[0].content["about"]["digests"]["weights"])
    trained = cli.TypedRun(place, model, run_data).load()
    certificates: list[Certificate] = []
    rows: list[Samples] = []
    with counting_bar(messages, "proving parts", len(paths)) as advance:
        for path, statement in zip(paths, stated, strict=True):
            if other := statement.other_problem(trained):
                raise errors.VerificationError(f"{path} is not verified: {other[0]}")
            rows.append(certified_data(trained, statement.settings).data)
            certificate = files.read_certificate(path)
            checked = verify_for_run(certificate, trained, statement.settings, rows[-1])
            certificates.append(files.with_checked(certificate, checked))
            advance(1)
    merged = merge_certificates(certificates, rows)
    about = merged.about
    if not about:
        raise errors.ArgumentError("`PARTS` must be certificates of shards (certus certify --shard).")
    # Each part has a table of its samples.
    about["digests"] = fingerprint(trained, convert(about["settings"], CertifySettings))
    title = title_of(trained)
    written = write_files(merged, output, title, include_data=include_data, with_table=False)
    show_certificate(merged, output, written, as_json=as_json)
