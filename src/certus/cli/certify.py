"""``certus certify``: brackets of the worst case, deterministic or by randomised smoothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certus._format import at_most
from certus._progress import progress_bar
from certus.cli.options import Json, ModelFile, NoLock, RunData
from certus.cli.output import console, messages, print_json, same_place, show_parts
from certus.cli.streams import if_interrupted
from certus.errors import (
    ArgumentError,
    ContradictionError,
    FailedCheckError,
    UnreadableModelError,
    UnsupportedError,
    require,
)
from certus.storage.write import WriteError, file_transaction, finish_transaction, remove_files, write_json

if TYPE_CHECKING:
    from certus.certificates.cache import DualValueCache
    from certus.certificates.certificate import Certificate
    from certus.datasets import SplitDataset
    from certus.runs.certification import CertifySettings, SmoothingSettings
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import LoadedRun
    from certus.smoothing.certificate import SmoothedCertificate
    from certus.smoothing.sampling import PredictionCache


CertifySeed = Annotated[
    int, typer.Option(help="Chooses the samples, and the order of the population bound; fix it beforehand.")
]

_PICTURE = "certificate.png"


def certify(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    rho: Annotated[
        list[float] | None,
        typer.Option(
            help="Mean transport cost, a mean squared distance; several. Default: EPSILON², or the run's own."
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help="Certified accuracy if each sample moves by at most this, in the cost's norm; several."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Also bound the population, with this confidence; data held out.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Other data than the run's own, in its units; names as in train.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="test (the default), calibration, train or a later sample; of --data, all rows."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many samples, chosen by the seed; all by default.")
    ] = None,
    seed: CertifySeed = 0,
    clip: Annotated[float | None, typer.Option(help="Certify min(loss, CLIP).")] = None,
    inequality: Annotated[
        str, typer.Option(help="Of the population: betting, bernstein, hoeffding.")
    ] = "betting",
    label_price: Annotated[float | None, typer.Option(help="Let labels change at this price.")] = None,
    class_weights: Annotated[
        str | None,
        typer.Option(help="equal, or balanced: losses count by class; as in training by default."),
    ] = None,
    predicted: Annotated[
        bool,
        typer.Option(
            "--predicted",
            help="Take the network's own predictions as labels: certify that they do not change.",
        ),
    ] = False,
    gamma: Annotated[list[float] | None, typer.Option(help="The grid of gamma; chosen by default.")] = None,
    balls: Annotated[int, typer.Option(help="Radii with bounds of their own; 0 is fastest.")] = 6,
    refine: Annotated[int, typer.Option(help="Rounds of refining gamma.")] = 1,
    attack_steps: Annotated[
        int, typer.Option(help="Gradients of the attacks that raise the lower sides; 0 for none.")
    ] = 10,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Let inputs move beyond where the run's may, such as [0, 1].")
    ] = False,
    smoothing: Annotated[
        float | None, typer.Option(help="Certify the network with Gaussian noise of this sigma instead.")
    ] = None,
    draws: Annotated[int, typer.Option(help="With --smoothing: noisy copies of each sample.")] = 100,
    votes: Annotated[int, typer.Option(help="With --smoothing: draws of the deployed vote.")] = 100,
    abstain: Annotated[float, typer.Option(help="With --smoothing: the level at which it abstains.")] = 0.001,
    fail_above: Annotated[
        float | None,
        typer.Option(
            help="Exit with code 1 if the bound on the error rate (0.2 is 20%), or on a regression's loss, "
            "is above this. With --confidence the population's bound is judged."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the files. Default: RUN/certificate, or RUN/certificate-predicted.",
        ),
    ] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    no_lock: NoLock = False,
    as_json_: Json = False,
) -> None:
    """Bracket the worst loss and error when held-out data move by RHO.

    \b
    certus certify runs/digits
    certus certify runs/digits --rho 0.01 --rho 0.1 --confidence 0.95
    certus certify runs/digits --rho 0.05 --split calibration --label-price 1
    certus certify runs/digits --epsilon 0.3 --epsilon 0.5
    certus certify runs/jobs --rho 0.1 --data csv:new.csv
    certus certify runs/noisy --rho 0.01 --smoothing 0.25
    certus certify runs/digits --rho 0.01 --fail-above 0.2
    certus certify runs/digits --predicted

    The worst case is over all distributions within transport cost RHO of the data.
    "At least" is attained by a distribution that was found. "At most" is proven, or assumed if it rests on
    rules of your own, which are named. If it is interrupted, give the same command again: it resumes.
    """
    from certus.certificates.cache import DualValueCache
    from certus.certificates.files import as_json, sample_table
    from certus.cli.options import of_labels, of_network, refuse_idle
    from certus.cli.output import console, messages, print_json, require_folder, show_parts
    from certus.display.render import parts_of
    from certus.domains import Unbounded
    from certus.runs.certification import CertifySettings, SmoothingSettings, fingerprint
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
    from certus.runs.verification import TABLE
    from certus.storage.write import (
        WriteError,
        file_transaction,
        finish_transaction,
        remove_files,
        write_atomically,
        write_json,
    )

    if smoothing is not None and confidence is None:
        confidence = 0.95
    opened, people = RunDirectory.open(run, data=run_data), confidence is not None
    folder = run / (OWN_LABELS_FOLDER if predicted else CERTIFICATE_FOLDER) if output is None else output
    require_folder("--output", folder)
    if output is not None or owner_of(folder) is not None:
        require_owned_folder(CERTIFICATE, "--output", folder)
    idle = of_network(opened)
    if smoothing is None:
        idle |= dict.fromkeys(IDLE_WITHOUT, "without --smoothing: it is about noise")
    else:
        idle |= dict.fromkeys(IDLE_WITH_NOISE, READ_ONLY)
    if not people:
        idle["inequality"] = "without --confidence: it is how the population is bounded"
    if samples is None and not people:
        idle["seed"] = "without --samples and --confidence: nothing is random"
    refuse_idle(context, idle)
    if not rho and not epsilon:
        rho = [default_rho(opened)]
    if class_weights is None:
        class_weights = "equal" if smoothing is not None else read_settings(opened).class_weights
    settings = CertifySettings(
        rho=tuple(rho or ()),
        epsilon=tuple(epsilon or ()),
        confidence=confidence,
        clip=clip,
        data=data,
        split=split or ("test" if data is None else "all"),
        samples=samples,
        seed=seed,
        predicted=predicted,
        label_price=label_price,
        inequality=inequality,
        gammas=tuple(gamma) if gamma else None,
        balls=balls,
        refine=refine,
        attack_steps=attack_steps,
        everywhere=everywhere,
        class_weights=class_weights,
    )
    trained = open_run(opened, model=model)
    require_limit(fail_above, trained.data)
    unbounded = isinstance(trained.domain, Unbounded)
    nothing_new = f"for {run}, whose inputs may lie anywhere already" if unbounded else None
    refuse_idle(context, {"everywhere": nothing_new} | of_labels(trained.data))
    if output is not None:
        require_same_run(trained, folder)
        require_same_labels(run, folder, predicted=predicted)
    say_notes(trained, settings)
    if smoothing is not None:
        noisy = SmoothingSettings(smoothing, draws, votes, abstain)
        smoothed = certify_in_noise(trained, settings, noisy, folder, locking=not no_lock, as_json=as_json_)
        refuse_above(fail_above, *judged_in_noise(smoothed))
        return
    folder.mkdir(parents=True, exist_ok=True)
    finish_transaction(folder, NAME, locking=not no_lock)
    question = {"settings": settings.as_json(), "digests": fingerprint(trained, settings)}
    cache = DualValueCache(folder / "unfinished", question, messages.print)
    with if_interrupted(lambda: cached_dual_values(cache)):
        certificate = compute(trained, settings, cache)
        rows = sample_table(certificate)
        certificate.about["digests"]["table"] = sha256_of(rows)
        content = as_json(certificate)
        try:
            with file_transaction(folder, NAME, locking=not no_lock) as new:
                write_atomically(new / TABLE, rows.encode())
                drawn = draw_certificate(certificate, new / _PICTURE, trained)
                write_json(new / NAME, content)
        except WriteError as reason:
            raise WriteError(f"{reason} {cached_dual_values(cache)}") from None
    if not drawn:
        remove_files(folder, [_PICTURE])
    cache.forget()
    if as_json_:
        print_json(content)
    else:
        show_parts(parts_of(certificate))
        console.print(f"Written: {folder / NAME}, {TABLE}{f', {_PICTURE}' if drawn else ''}.")
    refuse_above(fail_above, *judged_bounds(certificate))


NAME = "certificate.json"


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def say_notes(trained: LoadedRun, settings: CertifySettings) -> None:
    """What is to be said of other data that were read by the run's categories and medians."""
    from certus.runs.certification import certified_source

    if settings.data is not None:
        for note in certified_source(trained, settings).notes:
            messages.print(note)


def require_same_run(trained: LoadedRun, folder: Path) -> None:
    """Raise ``ArgumentError`` for a folder with the certificate of another run."""
    from certus.runs.directory import CERTIFICATES, certified_run
    from certus.storage.tensors import digest

    for file in (folder / name for name in CERTIFICATES if (folder / name).exists()):
        known = certified_run(file)
        path, weights = known or ("nothing that can be read", "")
        same = weights == digest(dict(trained.loss.model.state_dict()))
        same = same or (known is not None and same_place(path, trained.run.path))
        rule = f"be a folder of its own, or hold a certificate of {trained.run.path}"
        require(same, "--output", rule, f"{folder}, which has one of {path}")


def cached_dual_values(cache: DualValueCache) -> str:
    """What there is to go on from."""
    count = cache.count
    if count == 0:
        return "nothing is kept; the same command starts again."
    values = "values" if count > 1 else "value"
    return f"results at {count} {values} of gamma are kept in {cache.folder}; the same command continues."


def default_rho(run: RunDirectory) -> float:
    """The ρ of the run itself, announced; raises ``ArgumentError`` if it has none."""
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


def require_same_labels(run: Path, folder: Path, *, predicted: bool) -> None:
    """Raise ``ArgumentError`` for a folder that has, or is for, a certificate of the other kind of labels."""
    from certus.runs.directory import CERTIFICATE_FOLDER, OWN_LABELS_FOLDER, certified_labels

    file = folder / NAME
    other = file.exists() and certified_labels(file) == ("given" if predicted else "predicted")
    other = other or same_place(folder, run / (CERTIFICATE_FOLDER if predicted else OWN_LABELS_FOLDER))
    rule = "be another folder: certificates of given and of predicted labels are kept apart"
    require(not other, "--output", rule, folder)


def require_limit(limit: float | None, data: SplitDataset) -> None:
    """Raise ``ArgumentError`` for a limit that no bound could exceed, or every one: it would test nothing."""
    valid = limit is None or 0 <= limit < math.inf
    require(valid, "--fail-above", "be finite and not negative", limit)
    share = limit is None or data.classes is None or limit <= 1
    require(share, "--fail-above", "be a share of errors, at most 1 (0.2 for 20%)", limit)


def judged_bounds(certificate: Certificate) -> tuple[str, dict[float, float | None]]:
    """What ``--fail-above`` judges, in words, and its upper bound at every ρ that was asked for.

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
    return f"{name} of {whose}", {one.rho: getattr(one, side) for one in certificate.curve()}


def judged_in_noise(certificate: SmoothedCertificate) -> tuple[str, dict[float, float | None]]:
    """The same of a certificate by smoothing: one noisy prediction, or the loss of a regression."""
    name = certificate.quantities[0].name
    what = "error rate of one noisy prediction" if name == "error" else f"{name} in noise"
    words = f"{what} for the population (confidence {certificate.confidence:g})"
    return words, {rho: certificate.bound(rho, name) for rho in certificate.rhos}


def refuse_above(limit: float | None, what: str, bounds: Mapping[float, float | None]) -> None:
    """Raise ``FailedCheckError`` unless every bound, by its ρ, is at most the limit; say which was judged."""
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
    """With a progress bar, and remembering finished levels."""
    from certus.runs.certification import certify_run

    resumed = cache is not None and cache.count > 0
    with progress_bar(None, f"certifying {trained.run.path}", messages) as told:
        try:
            certificate = certify_run(trained, settings, cache=cache, progress=told)
        except UnreadableModelError as reason:
            raise UnreadableModelError(
                f"{reason} From the command line: certus certify {trained.run.path} --smoothing SIGMA."
            ) from None
        except ContradictionError as reason:
            if cache is None or not resumed:
                raise
            cache.forget()
            messages.print(f"{reason} All kept results are computed again.")
            certificate = certify_run(trained, settings, progress=told)
    return certificate


def draw_certificate(certificate: Certificate, path: Path, trained: LoadedRun) -> bool:
    try:
        run, data = trained.run.path, trained.data.name
        title = str(run) if run.name == data else f"{run}, on {data}"
        certificate.plot(path, title=title)
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True


READ_ONLY = "with --smoothing, which asks the network for predictions and reads nothing of it"

IDLE_WITH_NOISE = (
    "epsilon",
    "inequality",
    "predicted",
    "gamma",
    "balls",
    "refine",
    "everywhere",
    "class_weights",
)

IDLE_WITHOUT = ("draws", "votes", "abstain")


SMOOTHED, _SMOOTHED_PICTURE = "smoothing.json", "smoothing.png"


def certify_in_noise(
    trained: LoadedRun,
    settings: CertifySettings,
    noisy: SmoothingSettings,
    folder: Path,
    *,
    locking: bool,
    as_json: bool,
) -> SmoothedCertificate:
    """Compute, write and show it; what the network said is kept until then."""
    from certus.display.render import parts_of
    from certus.runs.certification import fingerprint
    from certus.smoothing.sampling import PredictionCache

    folder.mkdir(parents=True, exist_ok=True)
    finish_transaction(folder, SMOOTHED, locking=locking)
    question = {
        "settings": settings.as_json() | {"noise": noisy.as_json()},
        "digests": fingerprint(trained, settings),
    }
    cache = PredictionCache(folder / "unfinished", question, messages.print)
    with if_interrupted(lambda: _kept(cache)):
        certificate = compute_in_noise(trained, settings, noisy, cache)
        try:
            with file_transaction(folder, SMOOTHED, locking=locking) as new:
                drawn = _draw(certificate, new / _SMOOTHED_PICTURE, trained)
                write_json(new / SMOOTHED, certificate.as_json())
        except WriteError as reason:
            raise WriteError(f"{reason} {_kept(cache)}") from None
    if not drawn:
        remove_files(folder, [_SMOOTHED_PICTURE])
    cache.forget()
    if as_json:
        print_json(certificate.as_json())
    else:
        show_parts(parts_of(certificate))
        console.print(f"Written: {folder / SMOOTHED}{f', {_SMOOTHED_PICTURE}' if drawn else ''}.")
    return certificate


def compute_in_noise(
    trained: LoadedRun, settings: CertifySettings, noisy: SmoothingSettings, cache: PredictionCache | None
) -> SmoothedCertificate:
    """With a progress bar."""
    from certus.runs.certification import certify_smoothed_run

    with progress_bar(None, f"certifying {trained.run.path} in noise", messages) as told:
        return certify_smoothed_run(trained, settings, noisy, told, cache)


def _kept(cache: PredictionCache) -> str:
    """What there is to go on from."""
    if cache.count == 0:
        return "nothing is kept; the same command starts again."
    return f"what the network said so far is kept in {cache.folder}; the same command continues with it."


def _draw(certificate: SmoothedCertificate, path: Path, trained: LoadedRun) -> bool:
    try:
        certificate.plot(path, title=f"{trained.data.name}: {trained.run.path}")
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True
