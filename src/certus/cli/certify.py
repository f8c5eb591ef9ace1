"""``certus certify``: brackets of the worst case, deterministic or by randomised smoothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certus._format import at_most
from certus._progress import progress_bar
from certus.cli.options import (
    PATH,
    Choice,
    argument,
    command,
    json_option,
    model_option,
    no_lock_option,
    option,
    refuse_unused,
    run_data_option,
    unused_by_network,
    unused_without_labels,
)
from certus.cli.output import console, messages, print_json, require_folder, same_place, show_parts
from certus.cli.streams import if_interrupted
from certus.errors import (
    ArgumentError,
    ContradictionError,
    FailedCheckError,
    UnreadableModelError,
    UnsupportedError,
    require,
)
from certus.runs.settings import CLASS_WEIGHTS
from certus.storage.write import (
    WriteError,
    file_transaction,
    finish_transaction,
    remove_files,
    write_atomically,
    write_json,
)

if TYPE_CHECKING:
    from certus.certificates.cache import DualValueCache
    from certus.certificates.certificate import Certificate
    from certus.datasets import SplitDataset
    from certus.runs.certification import CertifySettings, SmoothingSettings
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import LoadedRun
    from certus.smoothing.certificate import SmoothedCertificate
    from certus.smoothing.sampling import PredictionCache

_FILE, _PICTURE = "certificate.json", "certificate.png"
_SMOOTHED_FILE, _SMOOTHED_PICTURE = "smoothing.json", "smoothing.png"
_PANELS = _SAMPLES, _BOUNDS, _SMOOTHING, _OUTPUT = (
    "Samples and distance",
    "Bounds",
    "Randomised smoothing",
    "Run and output",
)
_UNUSED_WITH_SMOOTHING = (
    *(
        "epsilon",
        "inequality",
        "own_labels",
        "gammas",
        "local_radii",
        "gamma_rounds",
        "unbounded",
        "class_weights",
    ),
)


@command("certify", panel="Prove", panels=_PANELS)
@argument("run", type=PATH)
@option(
    "--rho",
    type=float,
    multiple=True,
    panel=_SAMPLES,
    show_default="the square of EPSILON if that is given, else the rho of the run",
    help="Mean transport cost, a mean squared distance; may be repeated.",
)
@option(
    "--epsilon",
    type=float,
    multiple=True,
    panel=_SAMPLES,
    help="Certify the accuracy if each sample moves by at most this, in the cost's norm; may be repeated.",
)
@option(
    "--data",
    panel=_SAMPLES,
    show_default="the run's own",
    help="Data set to certify on, as for certus train; it is scaled as the run's own.",
)
@option(
    "--split",
    panel=_SAMPLES,
    show_default="test; all with --data",
    help="Split of the data: test, calibration, train, all, or a named later sample such as 2018.",
)
@option("--samples", type=int, panel=_SAMPLES, show_default="all", help="Number of samples, drawn at random.")
@option(
    "--seed",
    default=0,
    panel=_SAMPLES,
    help="Seed of the drawn samples and of the order of the population bound. Fix it before you see results.",
)
@option(
    "--own-labels",
    is_flag=True,
    panel=_SAMPLES,
    help="Take the network's own predictions as labels, to certify that they do not change.",
)
@option("--label-cost", type=float, panel=_SAMPLES, help="Cost at which a label may change.")
@option(
    "--class-weights",
    type=Choice(CLASS_WEIGHTS),
    panel=_SAMPLES,
    show_default="as in training",
    help="Weights of the classes in the loss: equal, or balanced by their frequency.",
)
@option(
    "--unbounded",
    is_flag=True,
    panel=_SAMPLES,
    help="Let inputs move outside the domain of the run's data, such as [0, 1].",
)
@option(
    "--confidence",
    type=float,
    panel=_BOUNDS,
    show_default="no population bound; 0.95 with --smoothing",
    help="Bound the population too, with this confidence. The samples must be held out.",
)
@option(
    "--inequality",
    type=Choice(("betting", "bernstein", "hoeffding")),
    default="betting",
    panel=_BOUNDS,
    help="Concentration inequality of the population bound.",
)
@option("--clip", type=float, panel=_BOUNDS, help="Certify min(loss, CLIP) in place of the loss.")
@option(
    "--gamma",
    "gammas",
    type=float,
    multiple=True,
    panel=_BOUNDS,
    show_default="a grid that is chosen",
    help="Value of the dual variable gamma; may be repeated.",
)
@option(
    "--local-radii",
    default=6,
    panel=_BOUNDS,
    help="Number of radii around each sample at which the network is bounded locally; 0 is fastest.",
)
@option(
    "--gamma-rounds",
    default=1,
    panel=_BOUNDS,
    help="Number of rounds in which the values of gamma are refined.",
)
@option(
    "--attack-steps",
    default=10,
    panel=_BOUNDS,
    help="Gradient steps of the attacks that raise the lower bounds; 0 for none.",
)
@option(
    "--smoothing",
    type=float,
    panel=_SMOOTHING,
    help="Certify the network under Gaussian noise of this standard deviation on its inputs.",
)
@option("--draws", default=100, panel=_SMOOTHING, help="Number of noisy copies of each sample.")
@option("--votes", default=100, panel=_SMOOTHING, help="Number of draws in a deployed prediction.")
@option(
    "--abstain",
    default=0.001,
    panel=_SMOOTHING,
    help="Significance level at which a deployed prediction abstains.",
)
@option(
    "--fail-above",
    type=float,
    panel=_OUTPUT,
    help="Exit with code 1 if a bound exceeds this: the bound on the error rate (0.2 is 20%), or on the loss "
    "of a regression; with --confidence, that of the population.",
)
@option(
    "--output",
    "-o",
    type=PATH,
    panel=_OUTPUT,
    show_default="RUN/certificate; RUN/certificate-predicted with --own-labels",
    help="Folder for the files.",
)
@model_option
@run_data_option
@no_lock_option
@json_option
@click.pass_context
def certify(
    context: click.Context,
    /,
    run: Path,
    smoothing: float | None,
    draws: int,
    votes: int,
    abstain: float,
    fail_above: float | None,
    output: Path | None,
    model: str | None,
    run_data: str | None,
    no_lock: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Bracket the worst loss and error if held-out data move by RHO.

    \b
    certus certify runs/digits
    certus certify runs/digits --rho 0.01 --rho 0.1 --confidence 0.95
    certus certify runs/digits --rho 0.05 --split calibration --label-cost 1
    certus certify runs/digits --epsilon 0.3 --epsilon 0.5
    certus certify runs/jobs --rho 0.1 --data csv:new.csv
    certus certify runs/noisy --rho 0.01 --smoothing 0.25
    certus certify runs/digits --rho 0.01 --fail-above 0.2
    certus certify runs/digits --own-labels

    RUN is a complete run directory. The worst case is over all distributions within transport cost RHO of the
    data. "At least" is attained by a distribution that was found. "At most" is proven, or assumed if it rests
    on rules of your own, which are named. An interrupted command continues when it is given again.
    """
    from certus.domains import Unbounded
    from certus.runs.certification import CertifySettings, SmoothingSettings
    from certus.runs.directory import (
        CERTIFICATE,
        CERTIFICATE_FOLDER,
        OWN_LABELS_FOLDER,
        RunDirectory,
        owner_of,
        require_owned_folder,
    )
    from certus.runs.factory import read_settings
    from certus.runs.loaded_run import open_run

    if smoothing is not None and options["confidence"] is None:
        options["confidence"] = 0.95
    population, own_labels = options["confidence"] is not None, options["own_labels"]
    opened = RunDirectory.open(run, data=run_data)
    folder = run / (OWN_LABELS_FOLDER if own_labels else CERTIFICATE_FOLDER) if output is None else output
    require_folder("--output", folder)
    if output is not None or owner_of(folder) is not None:
        require_owned_folder(CERTIFICATE, "--output", folder)
    unused = unused_by_network(opened)
    if smoothing is None:
        unused |= dict.fromkeys(("draws", "votes", "abstain"), "without --smoothing: it is about noise")
    else:
        reason = "with --smoothing, which asks the network for predictions and reads nothing of it"
        unused |= dict.fromkeys(_UNUSED_WITH_SMOOTHING, reason)
    if not population:
        unused["inequality"] = "without --confidence: it is how the population is bounded"
        if options["samples"] is None:
            unused["seed"] = "without --samples and --confidence: nothing is random"
    refuse_unused(context, unused)
    if not options["rho"] and not options["epsilon"]:
        options["rho"] = (_default_rho(opened),)
    if options["class_weights"] is None:
        options["class_weights"] = "equal" if smoothing is not None else read_settings(opened).class_weights
    options["split"] = options["split"] or ("test" if options["data"] is None else "all")
    settings = CertifySettings(**options | {"gammas": options["gammas"] or None})
    trained = open_run(opened, model=model)
    _require_limit(fail_above, trained.data)
    unbounded = isinstance(trained.domain, Unbounded)
    same = f"for {run}, whose inputs may lie anywhere already" if unbounded else None
    refuse_unused(context, {"unbounded": same} | unused_without_labels(trained.data))
    if output is not None:
        _require_same_run(trained, folder)
        _require_same_labels(run, folder, own_labels=own_labels)
    if settings.data is not None:
        from certus.runs.certification import certified_source

        for note in certified_source(trained, settings).notes:
            messages.print(note)
    folder.mkdir(parents=True, exist_ok=True)
    if smoothing is None:
        bounds = _certify_deterministic(trained, settings, folder, locking=not no_lock, as_json=as_json)
    else:
        noise = SmoothingSettings(smoothing, draws, votes, abstain)
        bounds = _certify_smoothed(trained, settings, noise, folder, locking=not no_lock, as_json=as_json)
    _refuse_above(fail_above, *bounds)


def _certify_deterministic(
    trained: LoadedRun, settings: CertifySettings, folder: Path, *, locking: bool, as_json: bool
) -> tuple[str, dict[float, float | None]]:
    """Compute, write and show a certificate; return the bounds that ``--fail-above`` judges."""
    from certus.certificates.cache import DualValueCache
    from certus.certificates.files import as_json as certificate_json
    from certus.certificates.files import sample_table
    from certus.display.render import parts_of
    from certus.runs.certification import fingerprint
    from certus.runs.verification import TABLE

    finish_transaction(folder, _FILE, locking=locking)
    question = {"settings": settings.as_json(), "digests": fingerprint(trained, settings)}
    cache = DualValueCache(folder / "unfinished", question, messages.print)

    def kept() -> str:
        count = cache.count
        if count == 0:
            return "nothing is kept; the same command starts again."
        values = "values" if count > 1 else "value"
        return f"results at {count} {values} of gamma are kept in {cache.folder}; the same command continues."

    with if_interrupted(kept):
        certificate = compute(trained, settings, cache)
        rows = sample_table(certificate)
        certificate.about["digests"]["table"] = hashlib.sha256(rows.encode()).hexdigest()
        content = certificate_json(certificate)
        try:
            with file_transaction(folder, _FILE, locking=locking) as new:
                write_atomically(new / TABLE, rows.encode())
                drawn = draw_certificate(certificate, new / _PICTURE, trained)
                write_json(new / _FILE, content)
        except WriteError as error:
            raise WriteError(f"{error} {kept()}") from None
    if not drawn:
        remove_files(folder, [_PICTURE])
    cache.clear()
    if as_json:
        print_json(content)
    else:
        show_parts(parts_of(certificate))
        console.print(f"Written: {folder / _FILE}, {TABLE}{f', {_PICTURE}' if drawn else ''}.")
    return _judged_bounds(certificate)


def _certify_smoothed(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings,
    folder: Path,
    *,
    locking: bool,
    as_json: bool,
) -> tuple[str, dict[float, float | None]]:
    """Compute, write and show a certificate by smoothing; return the bounds that ``--fail-above`` judges."""
    from certus.display.render import parts_of
    from certus.runs.certification import fingerprint
    from certus.smoothing.sampling import PredictionCache

    finish_transaction(folder, _SMOOTHED_FILE, locking=locking)
    question = {
        "settings": settings.as_json() | {"noise": noise.as_json()},
        "digests": fingerprint(trained, settings),
    }
    cache = PredictionCache(folder / "unfinished", question, messages.print)

    def kept() -> str:
        if cache.count == 0:
            return "nothing is kept; the same command starts again."
        return f"the predictions so far are kept in {cache.folder}; the same command continues with them."

    with if_interrupted(kept):
        certificate = compute_smoothed(trained, settings, noise, cache)
        try:
            with file_transaction(folder, _SMOOTHED_FILE, locking=locking) as new:
                drawn = True
                try:
                    title = f"{trained.data.name}: {trained.run.path}"
                    certificate.plot(new / _SMOOTHED_PICTURE, title=title)
                except UnsupportedError as error:
                    messages.print(f"No picture: {error}")
                    drawn = False
                write_json(new / _SMOOTHED_FILE, certificate.as_json())
        except WriteError as error:
            raise WriteError(f"{error} {kept()}") from None
    if not drawn:
        remove_files(folder, [_SMOOTHED_PICTURE])
    cache.clear()
    if as_json:
        print_json(certificate.as_json())
    else:
        show_parts(parts_of(certificate))
        console.print(f"Written: {folder / _SMOOTHED_FILE}{f', {_SMOOTHED_PICTURE}' if drawn else ''}.")
    quantity = certificate.quantities[0].name
    what = "error rate of one noisy prediction" if quantity == "error" else f"{quantity} in noise"
    words = f"{what} for the population (confidence {certificate.confidence:g})"
    return words, {rho: certificate.bound(rho, quantity) for rho in certificate.rhos}


def _require_same_run(trained: LoadedRun, folder: Path) -> None:
    """Raise ``ArgumentError`` for a folder with the certificate of another run."""
    from certus.runs.directory import CERTIFICATES, certified_run
    from certus.storage.tensors import digest

    for file in (folder / name for name in CERTIFICATES if (folder / name).exists()):
        certified = certified_run(file)
        path, weights = certified or ("nothing that can be read", "")
        same = weights == digest(dict(trained.loss.model.state_dict()))
        same = same or (certified is not None and same_place(path, trained.run.path))
        rule = f"be a folder of its own, or hold a certificate of {trained.run.path}"
        require(same, "--output", rule, f"{folder}, which has one of {path}")


def _default_rho(run: RunDirectory) -> float:
    """Return the ρ of the run itself and print it; raise ``ArgumentError`` if it has none."""
    from certus.runs.loaded_run import training_rho

    own = training_rho(run)
    if own is None:
        raise ArgumentError(
            f"`--rho` or `--epsilon` must be given for {run.path}, which has no rho of its own; got neither."
        )
    rho, origin = own
    messages.print(
        f"Neither --rho nor --epsilon given: rho = {rho:.4g}, a root mean square distance of "
        f"{rho**0.5:.3g}, by default: {origin}."
    )
    return rho


def _require_same_labels(run: Path, folder: Path, *, own_labels: bool) -> None:
    """Raise ``ArgumentError`` for a folder of a certificate of the other kind of labels."""
    from certus.runs.directory import CERTIFICATE_FOLDER, OWN_LABELS_FOLDER, certified_labels

    file = folder / _FILE
    other = file.exists() and certified_labels(file) == ("given" if own_labels else "predicted")
    other = other or same_place(folder, run / (CERTIFICATE_FOLDER if own_labels else OWN_LABELS_FOLDER))
    rule = "be another folder: certificates of given and of predicted labels are kept apart"
    require(not other, "--output", rule, folder)


def _require_limit(limit: float | None, data: SplitDataset) -> None:
    """Raise ``ArgumentError`` for a limit that no bound, or every bound, could exceed."""
    valid = limit is None or 0 <= limit < math.inf
    require(valid, "--fail-above", "be finite and not negative", limit)
    share = limit is None or data.classes is None or limit <= 1
    require(share, "--fail-above", "be a share of errors, at most 1 (0.2 for 20%)", limit)


def _judged_bounds(certificate: Certificate) -> tuple[str, dict[float, float | None]]:
    """Return the name of the quantity that ``--fail-above`` judges, and its upper bound at every ρ.

    The population's where the certificate has a confidence, else that of the certified samples: the error
    rate of a classifier, the mean loss of a regression.
    """
    from certus.display.tables import error_name

    people, labelled = certificate.population, certificate.classes is not None
    name = error_name(certificate.labels) if labelled else "mean loss"
    if people is None:
        side, whose = f"{'error' if labelled else 'loss'}_high", "the certified samples"
    else:
        side = f"population_{'error' if labelled else 'loss'}"
        whose = f"the population (confidence {people.confidence:g})"
        name += "" if labelled else f", clipped at {people.clip:g},"
    return f"{name} of {whose}", {bracket.rho: getattr(bracket, side) for bracket in certificate.curve()}


def _refuse_above(limit: float | None, what: str, bounds: Mapping[float, float | None]) -> None:
    """Raise ``FailedCheckError`` unless every bound, by its ρ, is at most the limit."""
    if limit is None:
        return
    for rho, bound in bounds.items():
        if bound is None or not math.isfinite(bound):
            raise FailedCheckError(
                f"--fail-above {limit:g}: at rho {rho:g} no bound on the {what} is proven."
            )
        if not bound <= limit:
            raise FailedCheckError(
                f"--fail-above {limit:g}: at rho {rho:g} the bound on the {what} is {at_most(bound)}."
            )
    highest = max(bound for bound in bounds.values() if bound is not None)
    messages.print(f"--fail-above {limit:g} holds: the {what} is at most {at_most(highest)}.")


def compute(trained: LoadedRun, settings: CertifySettings, cache: DualValueCache | None) -> Certificate:
    """Return the certificate, with a progress bar; finished values of γ are kept in the cache."""
    from certus.runs.certification import certify_run

    resumed = cache is not None and cache.count > 0
    with progress_bar(None, f"certifying {trained.run.path}", messages) as progress:
        try:
            certificate = certify_run(trained, settings, cache=cache, progress=progress)
        except UnreadableModelError as error:
            raise UnreadableModelError(
                f"{error} From the command line: certus certify {trained.run.path} --smoothing SIGMA."
            ) from None
        except ContradictionError as reason:
            if cache is None or not resumed:
                raise
            cache.clear()
            messages.print(f"{reason} All kept results are computed again.")
            certificate = certify_run(trained, settings, progress=progress)
    return certificate


def compute_smoothed(
    trained: LoadedRun, settings: CertifySettings, noise: SmoothingSettings, cache: PredictionCache | None
) -> SmoothedCertificate:
    """Return the certificate by smoothing, with a progress bar."""
    from certus.runs.certification import certify_smoothed_run

    with progress_bar(None, f"certifying {trained.run.path} in noise", messages) as progress:
        return certify_smoothed_run(trained, settings, noise, progress, cache)


def draw_certificate(certificate: Certificate, path: Path, trained: LoadedRun) -> bool:
    try:
        run, data = trained.run.path, trained.data.name
        title = str(run) if run.name == data else f"{run}, on {data}"
        certificate.plot(path, title=title)
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True
