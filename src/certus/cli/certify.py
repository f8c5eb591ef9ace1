"""``certus certify``: brackets of the worst case."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.interruption import if_interrupted
from certus.cli.shared_options import Json, ModelFile, NoLock, RunData

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
    from certus.certificates.cache import FileMemory
    from certus.certificates.files import as_json, sample_table
    from certus.cli.certifying import (
        NAME,
        compute,
        default_rho,
        draw_certificate,
        judged_bounds,
        judged_in_noise,
        kept_levels,
        refuse_above,
        require_limit,
        require_same_labels,
        require_same_run,
        say_notes,
        sha256_of,
    )
    from certus.cli.idle import of_labels, of_network, refuse_idle
    from certus.cli.noisy_table import IDLE_WITH_NOISE, IDLE_WITHOUT, READ_ONLY, certify_in_noise
    from certus.cli.output import console, messages, print_json, require_folder, show_parts
    from certus.display.tables import certificate_parts
    from certus.domains import Unbounded
    from certus.runs.certification import CertifySettings, NoisySettings, fingerprint
    from certus.runs.directory import (
        CERTIFICATE,
        CERTIFICATE_FOLDER,
        OWN_LABELS_FOLDER,
        RunDirectory,
        owner_of,
        require_folder_of,
    )
    from certus.runs.factory import settings_of
    from certus.runs.loaded_run import open_trained
    from certus.runs.verification import TABLE
    from certus.storage.write import (
        WriteError,
        appearing_together,
        complete,
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
        require_folder_of(CERTIFICATE, "--output", folder)
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
        class_weights = "equal" if smoothing is not None else settings_of(opened).class_weights
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
    trained = open_trained(opened, model=model)
    require_limit(fail_above, trained.data)
    unbounded = isinstance(trained.domain, Unbounded)
    nothing_new = f"for {run}, whose inputs may lie anywhere already" if unbounded else None
    refuse_idle(context, {"everywhere": nothing_new} | of_labels(trained.data))
    if output is not None:
        require_same_run(trained, folder)
        require_same_labels(run, folder, predicted=predicted)
    say_notes(trained, settings)
    if smoothing is not None:
        noisy = NoisySettings(smoothing, draws, votes, abstain)
        smoothed = certify_in_noise(trained, settings, noisy, folder, locking=not no_lock, as_json=as_json_)
        refuse_above(fail_above, *judged_in_noise(smoothed))
        return
    folder.mkdir(parents=True, exist_ok=True)
    complete(folder, NAME, locking=not no_lock)
    question = {"settings": settings.as_json(), "digests": fingerprint(trained, settings)}
    memory = FileMemory(folder / "unfinished", question, messages.print)
    with if_interrupted(lambda: kept_levels(memory)):
        certificate = compute(trained, settings, memory)
        rows = sample_table(certificate)
        certificate.about["digests"]["table"] = sha256_of(rows)
        content = as_json(certificate)
        try:
            with appearing_together(folder, NAME, locking=not no_lock) as new:
                write_atomically(new / TABLE, rows.encode())
                drawn = draw_certificate(certificate, new / _PICTURE, trained)
                write_json(new / NAME, content)
        except WriteError as reason:
            raise WriteError(f"{reason} {kept_levels(memory)}") from None
    if not drawn:
        remove_files(folder, [_PICTURE])
    memory.forget()
    if as_json_:
        print_json(content)
    else:
        show_parts(certificate_parts(certificate))
        console.print(f"Written: {folder / NAME}, {TABLE}{f', {_PICTURE}' if drawn else ''}.")
    refuse_above(fail_above, *judged_bounds(certificate))
