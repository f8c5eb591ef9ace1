"""``certus certify``: brackets of the worst case, deterministic or by randomised smoothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus import errors
from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.certify_support import certificate_folder, show_certificate, write_certificate, write_files
from certus.cli.output import console, messages
from certus.errors import require
from certus.requirements import Requirement, parsed
from certus.runs.settings import CertifySettings

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import LoadedRun
    from certus.smoothing.certificate import SmoothedCertificate


@cli.command("certify")
@cli.options_of(CertifySettings, types={"gammas": tuple[float, ...], "rho": tuple[cli.Budget, ...]})
@cli.panel("Budget from history")
@cli.option(
    "--history-by",
    default="month",
    help="Chunks of --rho from:FILE: day, week, month, quarter, year, rows, or a column.",
)
@cli.option("--history-dates", help="Column of the dates in FILE.", show_default="the only column of dates")
@cli.option(
    "--quantile",
    default=0.9,
    help="Quantile of the distances between chunks to take as rho; 1 for the largest.",
)
@cli.panel("Randomised smoothing")
@cli.option("--smoothing", type=float, help="Certify under Gaussian input noise of this standard deviation.")
@cli.option(
    "--draws", default=100, help="Number of noisy copies of each sample from which the bounds are computed."
)
@cli.option("--votes", default=100, help="Number of noisy copies that vote on each deployed prediction.")
@cli.option("--abstain", default=0.001, help="Significance level at which a deployed prediction abstains.")
@cli.panel("Tree models")
@cli.option(
    "--width", default=1.05, help="Ratio of the upper bound to the lower bound at which the search ends."
)
@cli.option(
    "--time-limit",
    type=float,
    help="Seconds after which the search ends in any case.",
    show_default="no limit",
)
@cli.allow_code_option
@cli.panel("Run and output")
@cli.option(
    "--require",
    "requirements",
    multiple=True,
    metavar="REQUIREMENT",
    help="Exit with code 1 unless this holds, such as error<=0.2, recall[yes]>=0.8 or population:loss<=0.5; "
    "may be repeated. certus gate --help lists all quantities.",
)
@cli.option(
    "--include-data",
    is_flag=True,
    help="Write the certified rows beside the certificate, for those who check it without the data.",
)
@cli.option(
    "--output",
    "-o",
    type=cli.PATH,
    show_default="RUN/certificate; RUN/certificate-own-labels with --own-labels",
    help="Folder for the files.",
)
@cli.jobs_option
@cli.cluster_option
@cli.takes_run
@cli.no_lock_option
@cli.json_option
def certify(
    run: cli.TypedRun,
    jobs: int,
    cluster: str | None,
    smoothing: float | None,
    width: float,
    time_limit: float | None,
    allow_code: bool,
    requirements: tuple[str, ...],
    include_data: bool,
    output: Path | None,
    no_lock: bool,
    as_json: bool,
    history_by: str,
    history_dates: str | None,
    quantile: float,
    **options: Any,
) -> None:
    """Bracket the worst loss and error if held-out data move by RHO.

    \b
    certus certify runs/digits
    certus certify runs/digits --rho 0.01 --rho 0.1 --confidence 0.95
    certus certify runs/digits --rho 0.05 --split calibration --label-cost 1
    certus certify runs/digits --epsilon 0.3 --epsilon 0.5
    certus certify runs/jobs --rho 0.1 --data csv:new.csv
    certus certify runs/jobs --rho from:old.csv --history-by month --quantile 0.9
    certus certify runs/noisy --rho 0.01 --smoothing 0.25
    certus certify runs/digits --rho 0.01 --require 'error<=0.2'
    certus certify runs/digits --own-labels
    certus certify runs/boosted --rho 0.01 --time-limit 600
    certus certify runs/digits --jobs -1

    RUN is a complete run directory. The worst case is over all distributions within transport cost RHO of the
    data. "At least" is attained by a distribution that was evaluated. "At most" is proven, or assumed if it
    rests on your own rules, which are then named. Repeat an interrupted command to resume it.
    """
    from certus.certificates.parallel import dask_cluster
    from certus.display.render import parts_of
    from certus.runs.certification import SmoothingSettings, certified_source
    from certus.runs.tree_run import is_tree_run

    if int(os.environ.get("WORLD_SIZE") or 1) > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        raise errors.ArgumentError(
            "`certus certify` must be started without torchrun, whose processes would all certify the same: "
            "use --jobs K, or --cluster tcp://HOST:8786."
        )
    with_population = options["confidence"] is not None or smoothing is not None
    wanted = _parsed_requirements(requirements, with_population=with_population)
    votes = [options.pop(name) for name in ("draws", "votes", "abstain")]
    histories = [rho for rho in options["rho"] if isinstance(rho, str)]
    if not histories:
        names = ("history_by", "history_dates", "quantile")
        cli.refuse_unused(dict.fromkeys(names, "without --rho from:FILE"))
    certificate: Certificate | SmoothedCertificate
    if is_tree_run(run.path):
        require(not histories, "--rho", "be a number for a tree model", ", ".join(histories))
        settings = _tree_settings(options)
        folder = certificate_folder(run.path, output, own_labels=settings.own_labels)
        with dask_cluster(cluster):
            certificate = _certify_trees(run.path, settings, width, time_limit, jobs, allow_code=allow_code)
        written = write_files(
            certificate, folder, str(run.path), include_data=include_data, locking=not no_lock
        )
    else:
        searched = ("width", "time_limit", "allow_code")
        cli.refuse_unused(dict.fromkeys(searched, "for a network: it is for tree models"))
        if smoothing is not None and options["confidence"] is None:
            options["confidence"] = 0.95
        opened = run.open()
        folder = certificate_folder(run.path, output, own_labels=options["own_labels"])
        _refuse_unused(options, output, smoothing=smoothing is not None)
        options["rho"] = tuple(rho for rho in options["rho"] if not isinstance(rho, str))
        message = ""
        if histories:
            message = _estimate_budget(run, histories, options, history_by, history_dates, quantile)
        elif not options["rho"] and not options["epsilon"]:
            message = _take_training_budget(opened, options)
        settings = _network_settings(opened, options, smoothing=smoothing is not None)
        trained = run.load()
        _refuse_unused_by_data(trained)
        if output is not None:
            _require_same_problem(trained, folder, own_labels=settings.own_labels)
        notes = () if settings.data is None else certified_source(trained, settings).notes
        for line in filter(None, (message, *notes)):
            messages.print(line)
        noise = None if smoothing is None else SmoothingSettings(smoothing, *votes)
        with dask_cluster(cluster):
            certificate, written = write_certificate(
                *(trained, settings, noise, folder),
                include_data=include_data,
                locking=not no_lock,
                jobs=jobs,
            )
    show_certificate(certificate, folder, written, as_json=as_json)
    if wanted:
        judged = certificate.check(wanted)
        for part in parts_of(judged):
            (messages if as_json else console).print(part)
        judged.require()


def _parsed_requirements(texts: tuple[str, ...], *, with_population: bool) -> list[Requirement]:
    """Parse ``--require``; raise ``ArgumentError`` for what this certificate cannot answer."""
    wanted = parsed(texts) if texts else []
    for each in wanted:
        attacked = each.attack is not None and each.attack.name != "certified"
        require(not attacked, "--require", "judge no attack: certus gate attacks", repr(each.text))
        bounded = with_population or not each.population
        require(bounded, "--require", "have --confidence for population:", repr(each.text))
    return wanted


# --- Tree models --------------------------------------------------------------------------------------

_LONG = 60.0  # seconds of first searches that are announced


def _tree_settings(options: dict[str, Any]) -> CertifySettings:
    """Return the settings for a tree model; raise ``ArgumentError`` for options without effect."""
    bounds = ("gammas", "deployment", "local_radii", "gamma_rounds", "attack_steps", "unbounded", "split")
    names = (*bounds, "class_weights")
    noise = ("smoothing", "draws", "votes", "abstain")
    unused: dict[str, str | None] = dict.fromkeys((*names, *noise, "model"), "for the run of a tree model")
    unused["run_data"] = "for the run of a tree model: --data names another table"
    if options["confidence"] is None:
        unused["inequality"] = "without --confidence: it applies to population bounds only"
    cli.refuse_unused(unused)
    require(bool(options["rho"]), "--rho", "be given for the run of a tree model", None)
    return CertifySettings(**options | {"split": "all", "class_weights": "equal", "gammas": None})


def _certify_trees(
    run: Path,
    settings: CertifySettings,
    width: float,
    time_limit: float | None,
    jobs: int,
    *,
    allow_code: bool,
) -> Certificate:
    """Certify the rows of a tree model's table, with a progress bar."""
    from certus.certificates.trees import first_seconds, in_words
    from certus.runs.tree_run import certify_tree_run, chosen_rows, load_tree_run

    trained = load_tree_run(run, data=settings.data, allow_code=allow_code)
    rows = len(chosen_rows(trained, settings).data)
    seconds = first_seconds(trained.reading.ensemble, rows)
    if seconds > _LONG:
        messages.print(
            f"The first searches of {rows:,} rows take about {in_words(seconds)} of one processor."
        )
    if settings.confidence is not None:
        messages.print(
            "A confidence holds if the model was not fitted or tuned on these rows: nothing checks that."
        )
    with progress_bar(None, f"certifying {run}", messages) as progress:
        return certify_tree_run(
            trained, settings, width=width, time_limit=time_limit, jobs=jobs, progress=progress
        )


# --- Networks -----------------------------------------------------------------------------------------


def _refuse_unused(options: dict[str, Any], output: Path | None, *, smoothing: bool) -> None:
    """Raise ``ArgumentError`` for options that have no effect together."""
    from certus.data import Shard

    unused: dict[str, str | None] = {}
    if smoothing:
        reason = "with --smoothing, which uses predictions and not the weights"
        names = ("epsilon", "inequality", "own_labels", "gammas", "local_radii", "gamma_rounds", "unbounded")
        unused |= dict.fromkeys((*names, "class_weights"), reason)
        unused["include_data"] = "with --smoothing, whose certificate is checked from its table"
        unused |= dict.fromkeys(("jobs", "cluster"), "with --smoothing, which runs in one process")
    else:
        unused |= dict.fromkeys(("draws", "votes", "abstain"), "without --smoothing")
    if options["confidence"] is None:
        unused["inequality"] = "without --confidence: it applies to population bounds only"
        if options["samples"] is None:
            unused["seed"] = "without --samples and --confidence: nothing is random"
    if (shard := options["shard"]) is not None:
        Shard.parse(shard, "--shard")
        require(not smoothing, "--shard", "be left out with --smoothing", shard)
        require(output is not None, "--output", "be given with --shard: each part has a folder", "none")
        if options["gamma_rounds"] != 0:
            unused["gamma_rounds"] = "with --shard: parts are merged on one grid of gamma"
        unused["seed"] = None
    cli.refuse_unused(unused)


def _estimate_budget(
    run: cli.TypedRun,
    histories: list[str],
    options: dict[str, Any],
    by: str,
    dates: str | None,
    quantile: float,
) -> str:
    """Add the ρ of ``--rho from:FILE`` to the options; return a message about it."""
    from certus.monitoring.chunks import budget_from_history

    spec = histories[0].removeprefix("from:")
    require(len(histories) == 1, "--rho", "name one history", ", ".join(histories))
    chunks: str | int = int(by) if by.isdigit() else by
    budget = budget_from_history(
        run.load(), spec, by=chunks, dates=dates, quantile=quantile, seed=options["seed"]
    )
    require(budget.rho > 0, "--rho", "come from a history that moves by more than chance", spec)
    options["rho"] += (budget.rho,)
    options["rho_origin"] = budget.words
    return f"{budget.words[0].upper()}{budget.words[1:]}."


def _take_training_budget(run: RunDirectory, options: dict[str, Any]) -> str:
    """Put the ρ of the run's training into the options; return a message about it."""
    from certus.runs.loaded_run import training_rho

    if (own := training_rho(run)) is None:
        whose = f"{run.path}, which was trained without a rho"
        raise errors.ArgumentError(f"`--rho` or `--epsilon` must be given for {whose}; got neither.")
    rho, origin = own
    options["rho"] = (rho,)
    words = f"rho = {rho:.4g}, a root mean square distance of {rho**0.5:.3g}, by default: {origin}."
    return f"Neither --rho nor --epsilon given: {words}"


def _network_settings(run: RunDirectory, options: dict[str, Any], *, smoothing: bool) -> CertifySettings:
    """Return the settings for a network, with the defaults that depend on the run."""
    from certus.runs.factory import read_settings

    if options["class_weights"] is None:
        options["class_weights"] = "equal" if smoothing else read_settings(run).class_weights
    if options["shard"] is not None:
        options["gamma_rounds"] = 0
    options["split"] = options["split"] or ("test" if options["data"] is None else "all")
    options["gammas"] = options["gammas"] or None
    return CertifySettings(**options)


def _refuse_unused_by_data(trained: LoadedRun) -> None:
    """Raise ``ArgumentError`` for options that have no effect on the run's data."""
    from certus.domains import Unbounded

    unbounded = isinstance(trained.domain, Unbounded)
    same = f"for {trained.run.path}, whose inputs are unbounded already" if unbounded else None
    cli.refuse_unused({"unbounded": same} | cli.unused_without_labels(trained.data))


def _require_same_problem(trained: LoadedRun, folder: Path, *, own_labels: bool) -> None:
    """Raise ``ArgumentError`` for a folder with a certificate of another run, or of the other labels."""
    from certus.runs import directory
    from certus.storage.tensors import digest

    run, other = trained.run.path, False
    for name in directory.CERTIFICATES:
        if (folder / name).exists():
            unknown = ("an unreadable file", "", None)
            path, weights, own = directory.certified_origin(folder / name) or unknown
            same = weights == digest(dict(trained.loss.model.state_dict())) or out.same_place(path, run)
            rule = f"be a new folder, or one with a certificate of {run}"
            require(same, "--output", rule, f"{folder}, which has a certificate of {path}")
            other |= name == "certificate.json" and own is (not own_labels)
    taken = directory.CERTIFICATE_FOLDER if own_labels else directory.OWN_LABELS_FOLDER
    rule = "be a different folder: certificates of given and of predicted labels are stored separately"
    require(not other and not out.same_place(folder, run / taken), "--output", rule, folder)
