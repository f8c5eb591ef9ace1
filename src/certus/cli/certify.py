"""``certus certify``: brackets of the worst case, deterministic or by randomised smoothing."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus import errors
from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.certify_trees import certify_tree_model
from certus.cli.output import console, messages
from certus.errors import require
from certus.requirements import Requirement, parsed
from certus.runs.settings import CertifySettings
from certus.storage import write

if TYPE_CHECKING:
    from certus.certificates.cache import ProposalCache, TensorCache
    from certus.certificates.certificate import Certificate
    from certus.runs.certification import SmoothingSettings
    from certus.runs.loaded_run import LoadedRun
    from certus.smoothing.certificate import SmoothedCertificate
    from certus.smoothing.sampling import PredictionCache


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
    "--quantile", default=0.9, help="Quantile of the moves between chunks that rho is; 1 is the largest move."
)
@cli.panel("Randomised smoothing")
@cli.option("--smoothing", type=float, help="Certify under Gaussian input noise of this standard deviation.")
@cli.option("--draws", default=100, help="Number of noisy copies of each sample that the bounds rest on.")
@cli.option("--votes", default=100, help="Number of noisy copies that a deployed prediction takes a vote of.")
@cli.option("--abstain", default=0.001, help="Significance level at which a deployed prediction abstains.")
@cli.panel("Tree models")
@cli.option(
    "--width", default=1.05, help="End the search where the upper side is at most this many times the lower."
)
@cli.option(
    "--time-limit",
    type=float,
    help="Seconds after which the search ends in any case.",
    show_default="no limit",
)
@cli.option(
    "--allow-code", is_flag=True, help="Load a model that is a pickle or joblib file: it executes code."
)
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
    data. "At least" is attained by a distribution that was found. "At most" is proven, or assumed if it rests
    on rules of your own, which are named. Give an interrupted command again to resume it.
    """
    from certus.certificates.parallel import dask_cluster
    from certus.data import Shard
    from certus.display.render import parts_of
    from certus.domains import Unbounded
    from certus.runs import directory
    from certus.runs.certification import SmoothingSettings, certified_source
    from certus.runs.factory import read_settings
    from certus.runs.loaded_run import training_rho
    from certus.runs.tree_run import is_tree_run

    if int(os.environ.get("WORLD_SIZE") or 1) > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        raise errors.ArgumentError(
            "`certus certify` must be started without torchrun, whose processes would all certify the same: "
            "use --jobs K, or --cluster tcp://HOST:8786."
        )
    wanted = parsed(requirements) if requirements else []
    for each in wanted:
        attacked = each.attack is not None and each.attack.name != "certified"
        require(not attacked, "--require", "judge no attack: certus gate attacks", repr(each.text))
        bounded = not each.population or options["confidence"] is not None or smoothing is not None
        require(bounded, "--require", "have --confidence for population:", repr(each.text))
    votes = [options.pop(name) for name in ("draws", "votes", "abstain")]
    histories = [rho for rho in options["rho"] if isinstance(rho, str)]
    if not histories:
        names = ("history_by", "history_dates", "quantile")
        cli.refuse_unused(dict.fromkeys(names, "without --rho from:FILE"))
    if is_tree_run(run.path):
        require(not histories, "--rho", "be a number for a tree model", ", ".join(histories))
        trees = certify_tree_model(
            run,
            options,
            width=width,
            time_limit=time_limit,
            jobs=jobs,
            cluster=cluster,
            allow_code=allow_code,
            include_data=include_data,
            output=output,
            locking=not no_lock,
            as_json=as_json,
        )
        _judge(trees, wanted, as_json=as_json)
        return
    searched = ("width", "time_limit", "allow_code")
    cli.refuse_unused(dict.fromkeys(searched, "for a network: it is for tree models"))
    if smoothing is not None and options["confidence"] is None:
        options["confidence"] = 0.95
    own_labels, opened, message = options["own_labels"], run.open(), ""
    options["rho"] = tuple(rho for rho in options["rho"] if not isinstance(rho, str))
    folder = output or run.path / (
        directory.OWN_LABELS_FOLDER if own_labels else directory.CERTIFICATE_FOLDER
    )
    out.require_folder("--output", folder)
    if output is not None or directory.owner_of(folder) is not None:
        directory.require_owned_folder(directory.CERTIFICATE, "--output", folder)
    unused: dict[str, str | None] = {}
    if smoothing is None:
        unused |= dict.fromkeys(("draws", "votes", "abstain"), "without --smoothing")
    else:
        reason = "with --smoothing, which uses predictions and not the weights"
        unused |= dict.fromkeys(("epsilon", "inequality", "own_labels", "gammas"), reason)
        unused |= dict.fromkeys(("local_radii", "gamma_rounds", "unbounded", "class_weights"), reason)
        unused["include_data"] = "with --smoothing, whose certificate is checked from its table"
    if options["confidence"] is None:
        unused["inequality"] = "without --confidence: it applies to population bounds only"
        if options["samples"] is None:
            unused["seed"] = "without --samples and --confidence: nothing is random"
    if (shard := options["shard"]) is not None:
        Shard.parse(shard, "--shard")
        require(smoothing is None, "--shard", "be left out with --smoothing", shard)
        require(output is not None, "--output", "be given with --shard: each part has a folder", "none")
        if options["gamma_rounds"] != 0:
            unused["gamma_rounds"] = "with --shard: parts are merged on one grid of gamma"
        unused["seed"] = None
    cli.refuse_unused(unused)
    if histories:
        from certus.monitoring.chunks import budget_from_history

        spec = histories[0].removeprefix("from:")
        require(len(histories) == 1, "--rho", "name one history", ", ".join(histories))
        by: str | int = int(history_by) if history_by.isdigit() else history_by
        budget = budget_from_history(
            run.load(), spec, by=by, dates=history_dates, quantile=quantile, seed=options["seed"]
        )
        require(budget.rho > 0, "--rho", "come from a history that moves by more than chance", spec)
        options["rho"] += (budget.rho,)
        options["rho_origin"], message = budget.words, f"{budget.words[0].upper()}{budget.words[1:]}."
    if smoothing is not None:
        cli.refuse_unused(dict.fromkeys(("jobs", "cluster"), "with --smoothing, which runs in one process"))
    if shard is not None:
        options["gamma_rounds"] = 0
    if not options["rho"] and not options["epsilon"]:
        if (own := training_rho(opened)) is None:
            whose = f"{run.path}, which was trained without a rho"
            raise errors.ArgumentError(f"`--rho` or `--epsilon` must be given for {whose}; got neither.")
        rho, origin = own
        options["rho"] = (rho,)
        words = f"rho = {rho:.4g}, a root mean square distance of {rho**0.5:.3g}, by default: {origin}."
        message = f"Neither --rho nor --epsilon given: {words}"
    if options["class_weights"] is None:
        options["class_weights"] = "equal" if smoothing is not None else read_settings(opened).class_weights
    options["split"] = options["split"] or ("test" if options["data"] is None else "all")
    settings = CertifySettings(**options | {"gammas": options["gammas"] or None})
    trained = run.load()
    unbounded = isinstance(trained.domain, Unbounded)
    same = f"for {run.path}, whose inputs are unbounded already" if unbounded else None
    cli.refuse_unused({"unbounded": same} | cli.unused_without_labels(trained.data))
    if output is not None:
        _require_same_problem(trained, folder, own_labels=own_labels)
    notes = () if settings.data is None else certified_source(trained, settings).notes
    for line in filter(None, (message, *notes)):
        messages.print(line)
    folder.mkdir(parents=True, exist_ok=True)
    noise = None if smoothing is None else SmoothingSettings(smoothing, *votes)
    with dask_cluster(cluster):
        certificate, written = write_certificate(
            *(trained, settings, noise, folder),
            jobs=jobs,
            include_data=include_data,
            locking=not no_lock,
        )
    if as_json:
        out.print_json(json.loads((folder / written[0]).read_bytes()))
    else:
        for part in parts_of(certificate):
            console.print(part)
        console.print(f"Written: {', '.join([str(folder / written[0]), *written[1:]])}.")
    _judge(certificate, wanted, as_json=as_json)


def _judge(
    certificate: Certificate | SmoothedCertificate, wanted: list[Requirement], *, as_json: bool
) -> None:
    """Show the outcomes of ``--require``; raise ``FailedCheckError`` unless all passed."""
    from certus.display.render import parts_of

    if wanted:
        judged = certificate.check(wanted)
        for part in parts_of(judged):
            (messages if as_json else console).print(part)
        judged.require()


def write_certificate(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings | None,
    folder: Path,
    *,
    include_data: bool,
    locking: bool,
    jobs: int = 1,
) -> tuple[Certificate | SmoothedCertificate, list[str]]:
    """Compute and write a certificate; return it, and the names of its files, the first that of the JSON."""
    from certus.certificates import files
    from certus.certificates.cache import ProposalCache
    from certus.runs.certification import fingerprint
    from certus.runs.verification import TABLE
    from certus.smoothing.certificate import SmoothedCertificate
    from certus.smoothing.sampling import PredictionCache

    name = "certificate" if noise is None else "smoothing"
    file, picture = f"{name}.json", f"{name}.png"
    write.finish_transaction(folder, file, locking=locking)
    typed = settings.as_json() | ({} if noise is None else {"noise": asdict(noise)})
    question = {"settings": typed, "digests": fingerprint(trained, settings)}
    place = folder / "unfinished", question, messages.print
    proposals, predictions = ProposalCache(*place), PredictionCache(*place)
    cache: TensorCache = proposals if noise is None else predictions

    def stored() -> str:
        what, count = "the predictions so far", cache.count
        if noise is None:
            what = f"results at {count} value{'s' if count > 1 else ''} of gamma"
        return (
            f"{what} are stored in {cache.folder}; run the same command to continue."
            if count
            else out.NOTHING_STORED
        )

    certificate: Certificate | SmoothedCertificate
    with out.if_interrupted(stored):
        written: dict[str, bytes] = {}
        if noise is None:
            certificate = compute(trained, settings, proposals, jobs)
            written[TABLE] = files.sample_table(certificate).encode()
            certificate.about["digests"]["table"] = hashlib.sha256(written[TABLE]).hexdigest()
            written |= files.certificate_files(certificate, file, include_data=include_data)
        else:
            certificate = compute_smoothed(trained, settings, noise, predictions)
        try:
            with write.file_transaction(folder, file, locking=locking) as new:
                drawn = draw_certificate(certificate, new / picture, trained)
                if isinstance(certificate, SmoothedCertificate):
                    certificate.save(new / file)
                for each, content in written.items():
                    write.write_atomically(new / each, content)
        except write.WriteError as error:
            raise write.WriteError(f"{error} {stored()}") from None
    if not drawn:  # nor may that of an earlier certificate stay
        with suppress(OSError):
            (folder / picture).unlink()
    if noise is None:
        files.remove_absent(folder / file, written)
    cache.clear()
    others = [each for each in written if each != file] if noise is None else ["smoothing.safetensors"]
    return certificate, [file, *others, *([picture] if drawn else [])]


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


def compute(
    trained: LoadedRun, settings: CertifySettings, cache: ProposalCache | None, jobs: int = 1
) -> Certificate:
    """Return the certificate, with a progress bar; the points proposed at each γ are kept in the cache."""
    from certus.models.own_code import is_own_file
    from certus.runs.certification import certify_run

    with progress_bar(None, f"certifying {trained.run.path}", messages) as progress:
        try:
            return certify_run(trained, settings, cache=cache, progress=progress, n_jobs=jobs)
        except errors.UnreadableModelError as error:
            model = f" --model {trained.settings.model}" if is_own_file(trained.settings.model) else ""
            hint = f"certus certify {trained.run.path}{model} --smoothing SIGMA"
            raise errors.UnreadableModelError(f"{error} From the command line: {hint}.") from None


def compute_smoothed(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings,
    cache: PredictionCache | None,
) -> SmoothedCertificate:
    """Return the certificate by smoothing, with a progress bar."""
    from certus.runs.certification import certify_smoothed_run

    with progress_bar(None, f"certifying {trained.run.path} in noise", messages) as progress:
        return certify_smoothed_run(trained, settings, noise, progress, cache)


def draw_certificate(certificate: Certificate | SmoothedCertificate, path: Path, trained: LoadedRun) -> bool:
    """Draw a certificate; return False where it cannot be drawn, and say why."""
    run, data = trained.run.path, trained.data.name
    try:
        certificate.plot(path, title=str(run) if run.name == data else f"{run}, on {data}")
    except errors.UnsupportedError as reason:
        messages.print(f"No figure: {reason}")
        return False
    return True
