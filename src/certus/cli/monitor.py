"""``certus monitor``: compare new data with the certified ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.output import console, messages
from certus.errors import FailedCheckError, UnsupportedError, require, require_count
from certus.table_options import listed_names

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate
    from certus.monitoring import MonitorResult
    from certus.runs.loaded_run import LoadedRun

PICTURE = "monitor.png"


@cli.command("monitor")
@cli.new_rows_options
@cli.panel("Rows and columns")
@cli.option("--columns", help="Columns to compare, separated by commas; all others count as unchanged.")
@cli.option(
    "--clusters",
    help="Column with names of clusters, such as customers; the rows of a cluster are permuted together.",
)
@cli.panel("Time")
@cli.option(
    "--chunks",
    help="Compare in chunks: by day, week, month, quarter or year; a number of rows; or the column that "
    "names the chunk of each row.",
)
@cli.option("--dates", help="Column of the dates for --chunks.", show_default="the only column of dates")
@cli.option(
    "--horizon",
    type=int,
    help="Number of checks that share --level, such as 12 for a year of monthly checks.",
    show_default="the number of chunks",
)
@cli.panel("Run and output")
@cli.option("--level", default=0.05, help="Probability of a false alarm, of all chunks together.")
@cli.option("--seed", default=0, help="Seed of random subsets and permutations.")
@cli.option(
    "--certificate",
    type=cli.PATH,
    help="Certificate to compare with.",
    show_default="that in RUN/certificate",
)
@cli.option(
    "--output",
    "-o",
    type=cli.PATH,
    help="File of results, one JSON object a line; earlier results of the same certificate are kept.",
    show_default="RUN/monitor.jsonl",
)
@cli.option(
    "--plot", type=cli.PATH, help="Picture to write (.png, .svg or .pdf).", show_default="RUN/monitor.png"
)
@cli.takes_run
@cli.argument("new")
@cli.option("--json", "as_json", is_flag=True, help="Print the results as JSON on stdout, one line each.")
def monitor(
    run: cli.TypedRun,
    new: str,
    columns: str | None,
    clusters: str | None,
    chunks: str | None,
    dates: str | None,
    horizon: int | None,
    level: float,
    seed: int,
    certificate: Path | None,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    **reading: str | None,
) -> None:
    """Compare new data with the certified ones, and raise an alarm.

    \b
    certus monitor runs/jobs new.csv
    certus monitor runs/jobs new.csv --chunks month --dates issued
    certus monitor runs/jobs today.csv --horizon 365 --json
    certus monitor runs/jobs new.csv --columns income,age

    RUN is a run with a certificate, NEW a file (.csv or .parquet) or a data set as for certus train, or
    DATA@SPLIT. "covered": a coupling with the certified rows costs at most rho, so that the bound holds if
    each row has the label of the row it is coupled with. "outside": the rows are proven to be farther away
    than rho, or lie outside the domain. An alarm means that the data changed by more than chance and are not
    covered. Without labels, no method can show a change of the labels' dependence on the inputs. The kernel
    proves the certificate again before it is compared with. Exit code 0: no alarm. 1: an alarm, or a number
    of the certificate does not follow. 2: refused.
    """
    from certus.monitoring import Monitor
    from certus.monitoring._monitor import certificate_file
    from certus.monitoring.chunks import PERIODS, check_chunks, table_spec
    from certus.monitoring.history import RESULTS, record, stored_results
    from certus.runs.tree_run import is_tree_run

    require(0 < level < 1, "level", "lie between 0 and 1", level)
    without = "without --chunks: there is one check"
    cli.refuse_unused({"dates": without if chunks not in PERIODS else None})
    if horizon is not None:
        require_count("horizon", horizon)
    places = {"output": output or run.path / RESULTS, "plot": plot or run.path / PICTURE}
    if output is not None:
        out.require_file("--output", output)
    if plot is not None:
        out.require_picture("--plot", plot)
    if is_tree_run(run.path):
        raise UnsupportedError(
            f"{run.path} holds a tree model: certus.Monitor(certificate) monitors it in Python, if its "
            "columns are numbers."
        )
    stored_results(places["output"])  # which refuses other files before anything is computed
    trained = run.load()
    with out.if_interrupted(lambda: out.NOTHING_STORED):
        watch = Monitor(
            _checked(trained, certificate_file(run.path if certificate is None else certificate)),
            level=level,
            columns=None if columns is None else listed_names(columns),
            seed=seed,
            run=trained,
            reading=cli.reading_of_new_rows(trained.settings.table, reading),
        )
        whole: str | int = "" if chunks is None else int(chunks) if chunks.isdigit() else chunks
        results = []
        for result in check_chunks(
            watch, table_spec(new), by=whole, dates=dates, clusters=clusters, horizon=horizon, name=new
        ):
            results.append(result)
            if as_json:
                print(json.dumps(result.as_json(), allow_nan=False), file=out.results(), flush=True)
    weights = str(watch.certificate.about.get("digests", {}).get("weights", ""))
    stored = record(places["output"], results, weights)
    _show(results, stored, places, as_json=as_json)
    alarms = [result.name for result in results if result.alarm]
    if alarms:
        names = ", ".join(alarms[:6]) + (f" and {len(alarms) - 6} more" if len(alarms) > 6 else "")
        what = "the data have changed by more than chance, and are not covered by the certificate"
        raise FailedCheckError(f"alarm: {what}: {names}")


def _checked(trained: LoadedRun, file: Path) -> Certificate:
    """Read a certificate about a run, which the kernel proves again where it can."""
    from certus.certificates.certificate import Certificate
    from certus.cli.certified_run import CertifiedNetwork, checked_certificate, stated_settings
    from certus.runs.verification import is_smoothed

    require(not is_smoothed(file), "--certificate", "be a certificate of the model without noise", file)
    certified = CertifiedNetwork(trained, locking=False)
    try:
        certificate, _ = checked_certificate(certified, file)
    except UnsupportedError as reason:
        stated_settings(certified, file)
        messages.print(f"The certificate is not re-checked: {reason}")
        certificate = Certificate.load(file)
    assert isinstance(certificate, Certificate)
    return certificate


def _show(
    results: list[MonitorResult], stored: list[dict[str, Any]], places: dict[str, Path], *, as_json: bool
) -> None:
    """Print results, and draw them with those that were stored before."""
    from certus.display.canvas import save_figure
    from certus.display.figures import monitor_figure
    from certus.display.tables import chunk_table, monitor_parts

    if not as_json:
        if len(results) > 1:
            console.print(chunk_table([result.as_json() for result in results]))
        explained = results if len(results) == 1 else [_worst(results)]
        for result in explained:
            for part in monitor_parts(result):
                console.print(part)
        for note in dict.fromkeys(note for result in results for note in result.notes):
            messages.print(note)
    try:
        save_figure(monitor_figure(stored), places["plot"])
    except UnsupportedError as reason:
        messages.print(f"No figure: {reason}")
    if not as_json:
        console.print(f"Written: {places['output']}, {places['plot'].name}.")


def _worst(results: list[MonitorResult]) -> MonitorResult:
    """Return the result to explain: the alarm farthest above its line, or else the check nearest to it."""
    return max(results, key=lambda result: (result.alarm, result.statistic - result.line))
