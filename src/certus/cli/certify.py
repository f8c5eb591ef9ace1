"""``certus certify``: brackets of the worst case, deterministic or by randomised smoothing."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus import errors
from certus._format import at_most
from certus._progress import progress_bar
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.output import console, messages
from certus.errors import require
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
@cli.options_of(CertifySettings, types={"gammas": tuple[float, ...]})
@cli.panel("Randomised smoothing")
@cli.option("--smoothing", type=float, help="Certify under Gaussian input noise of this standard deviation.")
@cli.option("--draws", default=100, help="Number of noisy copies of each sample.")
@cli.option("--votes", default=100, help="Number of draws in a deployed prediction.")
@cli.option("--abstain", default=0.001, help="Significance level at which a deployed prediction abstains.")
@cli.panel("Run and output")
@cli.option(
    "--fail-above",
    type=float,
    help="Exit with code 1 if a bound exceeds this: the bound on the error rate (0.2 is 20%), or on the loss "
    "of a regression; with --confidence, that of the population.",
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
@cli.takes_run
@cli.no_lock_option
@cli.json_option
def certify(
    run: cli.TypedRun,
    smoothing: float | None,
    fail_above: float | None,
    include_data: bool,
    output: Path | None,
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
    from certus.runs import directory
    from certus.runs.certification import SmoothingSettings, certified_source
    from certus.runs.factory import read_settings
    from certus.runs.loaded_run import training_rho

    votes = [options.pop(name) for name in ("draws", "votes", "abstain")]
    if smoothing is not None and options["confidence"] is None:
        options["confidence"] = 0.95
    own_labels, opened, message = options["own_labels"], run.open(), ""
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
    cli.refuse_unused(unused)
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
    if fail_above is not None:
        require(0 <= fail_above < math.inf, "--fail-above", "be finite and not negative", fail_above)
        share = trained.data.classes is None or fail_above <= 1
        require(share, "--fail-above", "be a share of errors, at most 1 (0.2 for 20%)", fail_above)
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
    certificate = _certify(
        trained, settings, noise, folder, include_data=include_data, locking=not no_lock, as_json=as_json
    )
    if fail_above is not None:
        _refuse_above(fail_above, *_judged_bounds(certificate))


def _certify(
    trained: LoadedRun,
    settings: CertifySettings,
    noise: SmoothingSettings | None,
    folder: Path,
    *,
    include_data: bool,
    locking: bool,
    as_json: bool,
) -> Certificate | SmoothedCertificate:
    """Compute, write and show a certificate."""
    from certus.certificates import files
    from certus.certificates.cache import ProposalCache
    from certus.display.render import parts_of
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
            certificate = compute(trained, settings, proposals)
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
    if as_json:
        out.print_json(json.loads((folder / file).read_bytes()))
    else:
        for part in parts_of(certificate):
            console.print(part)
        others = [each for each in written if each != file] if noise is None else ["smoothing.safetensors"]
        others += [picture] if drawn else []
        console.print(f"Written: {', '.join([str(folder / file), *others])}.")
    return certificate


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


def _judged_bounds(certificate: Certificate | SmoothedCertificate) -> tuple[str, dict[float, float | None]]:
    """Return the quantity that ``--fail-above`` judges, in words, and its upper bound at every ρ."""
    from certus.display.tables import error_name
    from certus.smoothing.certificate import SmoothedCertificate

    if isinstance(certificate, SmoothedCertificate):
        quantity = certificate.quantities[0].name
        name = "error rate of one noisy prediction" if quantity == "error" else f"{quantity} in noise"
        name += f" for the population (confidence {certificate.confidence:g})"
        return name, {rho: certificate.bound(rho, quantity) for rho in certificate.rhos}
    people, labelled = certificate.population, certificate.classes is not None
    name = error_name(certificate.labels) if labelled else "mean loss"
    if people is None:
        side, whose = f"{'error' if labelled else 'loss'}_high", "the certified samples"
    else:
        side = f"population_{'error' if labelled else 'loss'}"
        whose = f"the population (confidence {people.confidence:g})"
        name += "" if labelled else f", clipped at {people.clip:g},"
    return f"{name} of {whose}", {bracket.rho: getattr(bracket, side) for bracket in certificate.curve()}


def _refuse_above(limit: float, what: str, bounds: Mapping[float, float | None]) -> None:
    """Raise ``FailedCheckError`` unless every bound, by its ρ, is at most the limit."""
    highest = 0.0
    for rho, bound in bounds.items():
        where = f"--fail-above {limit:g}: at rho {rho:g}"
        if bound is None or not math.isfinite(bound):
            raise errors.FailedCheckError(f"{where} no bound on the {what} is proven.")
        if not bound <= limit:
            raise errors.FailedCheckError(f"{where} the bound on the {what} is {at_most(bound)}.")
        highest = max(highest, bound)
    messages.print(f"--fail-above {limit:g} holds: the {what} is at most {at_most(highest)}.")


def compute(trained: LoadedRun, settings: CertifySettings, cache: ProposalCache | None) -> Certificate:
    """Return the certificate, with a progress bar; the points proposed at each γ are kept in the cache."""
    from certus.models.own_code import is_own_file
    from certus.runs.certification import certify_run

    with progress_bar(None, f"certifying {trained.run.path}", messages) as progress:
        try:
            return certify_run(trained, settings, cache=cache, progress=progress)
        except errors.UnreadableModelError as error:
            model = f" --model {trained.settings.model}" if is_own_file(trained.settings.model) else ""
            hint = f"certus certify {trained.run.path}{model} --smoothing SIGMA"
            raise errors.UnreadableModelError(f"{error} From the command line: {hint}.") from None


def compute_smoothed(
    trained: LoadedRun, settings: CertifySettings, noise: SmoothingSettings, cache: PredictionCache | None
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
