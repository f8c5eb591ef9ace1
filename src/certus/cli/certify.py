"""``certus certify``: brackets of the worst case."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.kept import FileMemory
from certus.certificates.record import as_json, sample_table
from certus.cli.attack_trials import ModelFile
from certus.cli.idle import of_labels, of_network, refuse_idle
from certus.cli.output import Json, console, make_table, messages, print_json
from certus.cli.progress import counting
from certus.decimals import at_least, at_most
from certus.domains import Unbounded
from certus.errors import ContradictionError, UnsupportedError
from certus.runs.certification import CertifySettings, certified_data, certify_run, fingerprint
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.runs.verification import TABLE
from certus.smoothness.results import assumed_words
from certus.storage.files import write_atomically, write_json

CertifySeed = Annotated[
    int, typer.Option(help="Chooses the samples, and the order of the population bound; fix it beforehand.")
]
_NAME, _PICTURE = "certificate.json", "certificate.png"


def certify(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    rho: Annotated[list[float], typer.Option(help="Mean transport cost, a mean squared distance; several.")],
    confidence: Annotated[
        float | None, typer.Option(help="Also bound the population, with this confidence; data held out.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Other data than the run's own, in its units; names as in train.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="test (the default), calibration, train, a later sample; all of --data."),
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
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Certify the network's own predictions.")
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
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the files; RUN/certificate by default.")
    ] = None,
    model: ModelFile = None,
    as_json_: Json = False,
) -> None:
    """Bracket the worst loss and error rate over all distributions within RHO of held-out data.

    \b
    certus certify runs/digits --rho 0.01 --rho 0.1 --confidence 0.95
    certus certify runs/digits --rho 0.05 --split calibration --label-price 1
    certus certify runs/jobs --rho 0.1 --data csv:new.csv

    "At least" is attained by a distribution that was found; "at most" is proven, or assumed if it rests
    on rules of your own, which are named. An interrupted certification goes on where it was when it is asked
    for again.
    """
    opened, people = RunDirectory.open(run), confidence is not None
    idle = of_network(opened)
    idle["inequality"] = None if people else "without --confidence: it is how the population is bounded"
    if samples is None and not people:
        idle["seed"] = "without --samples and --confidence: nothing is random"
    refuse_idle(context, idle)
    settings = CertifySettings(
        rho=tuple(rho),
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
    )
    trained = open_trained(opened, model=model)
    unbounded = isinstance(trained.domain, Unbounded)
    nothing_new = f"for {run}, whose inputs may lie anywhere already" if unbounded else None
    refuse_idle(context, {"everywhere": nothing_new} | of_labels(trained.data))
    folder = run / "certificate" if output is None else output
    certificate = compute(trained, settings, folder)
    rows = sample_table(certificate)
    certificate.about["digests"]["table"] = _sha256(rows)
    content = as_json(certificate)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / TABLE, rows.encode())
    write_json(folder / _NAME, content)
    drawn = _draw(certificate, folder / _PICTURE, trained)
    if as_json_:
        print_json(content)
        return
    _show(certificate, trained)
    console.print(f"Written: {folder / _NAME}, {TABLE}{f', {_PICTURE}' if drawn else ''}.")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def compute(trained: TrainedRun, settings: CertifySettings, folder: Path | None) -> Certificate:
    """With a progress bar, and remembering finished levels in a folder until all are done."""
    question = {"settings": settings.as_json(), "digests": fingerprint(trained, settings)}
    memory = None if folder is None else FileMemory(folder / "unfinished", question, messages.print)
    resumed = memory is not None and memory.holds_any
    count = len(certified_data(trained, settings).data)
    # What refining will add is not known beforehand: about two γ for each ρ.
    passes = 20 + 2 * len(settings.rho)
    with counting(messages, f"certifying {trained.run.path}", count * passes) as advance:
        try:
            certificate = certify_run(trained, settings, memory=memory, progress=advance)
        except ContradictionError as reason:
            if memory is None or not resumed:
                raise
            memory.forget()
            messages.print(f"{reason} All kept levels are computed again.")
            certificate = certify_run(trained, settings, progress=advance)
    if memory is not None:
        memory.forget()
    return certificate


def _show(certificate: Certificate, trained: TrainedRun) -> None:
    people, limit, both = certificate.population, certificate.vacuous_loss, certificate.classes is not None
    loss = make_table("rho", "distance", "loss at least", "at most", f"{certificate.evidence} how")
    rate = make_table("rho", "distance", "error at least", "at most")
    everyone = make_table(
        "rho", "population: loss at least", "at most", *(("error at least", "at most") if both else ())
    )
    for one in certificate.curve():
        loss.add_row(*_where(one), *_sides(one.loss_low, one.loss_high, limit), _how(one))
        rate.add_row(*_where(one), *_sides(one.error_low, one.error_high, 1.0))
        rates = _sides(one.population_error_low, one.population_error, 1.0) if both else ()
        everyone.add_row(f"{one.rho:g}", *_sides(one.population_loss_low, one.population_loss, limit), *rates)
    console.print(loss)
    if both:
        console.print(rate)
    if people is not None:
        console.print(everyone)
    console.print(
        f"About {certificate.about['rows']['words']}. Distance: the root of rho, in {trained.data.units}. "
        f"At least: attained by a distribution that was found; at most: {certificate.evidence}."
    )
    if certificate.assumptions:
        console.print(assumed_words(certificate.assumptions))
    if people is not None:
        console.print(
            f"Population: with confidence {people.confidence:g} over independent draws of such rows, for the "
            f"loss, clipped at {people.clip:.4g},{' and the error rate together,' if both else ''} for both "
            f"sides and all rho; the loss by {people.inequality}"
            f"{', the error rate by DKW or betting' if both else ''}, in the order of seed {people.seed}."
        )
    if limit is not None:
        console.print(f"Vacuous: above ln K = {limit:.4g}, or at 1, a bound says no more than guessing does.")


def _where(one: Bracket) -> tuple[str, str]:
    return f"{one.rho:g}", f"{one.distance:.3g}"


def _how(one: Bracket) -> str:
    if one.rho == 0:
        return "the data themselves"
    return ", ".join(
        f"{name} {share:.0%}" for name, share in sorted(one.rules.items(), key=lambda item: -item[1])
    )


def _sides(low: float | None, high: float | None, limit: float | None) -> tuple[str, str]:
    return "–" if low is None else at_least(low), _bound(high, limit)


def _bound(value: float | None, limit: float | None) -> str:
    if value is None:
        return "–"
    vacuous = limit is not None and value >= limit
    return at_most(value) + (" vacuous" if vacuous else "")


def _draw(certificate: Certificate, path: Path, trained: TrainedRun) -> bool:
    try:
        from certus.figures.brackets import draw_bracket

        draw_bracket(certificate, path, trained.data.units, f"{trained.data.name}: {trained.run.path}")
    except UnsupportedError as reason:
        messages.print(f"No picture: {reason}")
        return False
    return True
