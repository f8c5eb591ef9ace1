"""``certus gate``: judge requirements on a run, with an exit code for CI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from certus.cli import options as cli
from certus.cli.certified_run import CertifiedRun, checked_certificate, open_certified_run, stated_settings
from certus.cli.output import console, messages, print_json, require_file, results
from certus.errors import ArgumentError, require
from certus.requirements import BY_CLASS, GateResult, Requirement, combined, parsed
from certus.storage.write import write_atomically


@cli.command("gate")
@cli.option(
    "--require",
    "requirements",
    multiple=True,
    required=True,
    metavar="REQUIREMENT",
    help="Requirement such as error<=0.12@rho=0.01, loss<=0.5, recall[yes]>=0.8, fpr[yes]<=0.1, "
    "balanced_error<=0.2, expected_cost[0,1;5,0]<=0.3, accuracy@pgd:inf:0.1>=0.8, "
    "accuracy@certified:0.1>=0.7 or vote<=0.1; may be repeated. With population: before it, it is about the "
    "bound for the population; without @rho=…, it must hold at every rho of the certificate.",
)
@cli.option(
    "--certificate",
    "file",
    type=cli.PATH,
    show_default="that of RUN, whose missing parts are certified first",
    help="certificate.json or smoothing.json to judge.",
)
@cli.option(
    "--confidence",
    type=float,
    show_default="that of the certificate, else 0.95",
    help="Confidence of population bounds that this command computes.",
)
@cli.option(
    "--junit", type=cli.PATH, help="JUnit XML to write, with a test case for each requirement and rho."
)
@cli.allow_code_option
@cli.takes_run
@cli.no_lock_option
@cli.json_option
def gate(
    run: cli.TypedRun,
    requirements: tuple[str, ...],
    file: Path | None,
    confidence: float | None,
    junit: Path | None,
    allow_code: bool,
    no_lock: bool,
    as_json: bool,
) -> None:
    """Judge requirements on a run; exit with code 1 if one fails.

    \b
    certus gate runs/digits --require 'error<=0.12@rho=0.01'
    certus gate runs/jobs --require 'recall[yes]>=0.8' --junit gate.xml
    certus gate runs/jobs --require 'population:error<=0.2' --confidence 0.99
    certus gate runs/digits --require 'accuracy@pgd:inf:0.1>=0.6' --json
    certus gate runs/noisy --require 'vote<=0.1@rho=0.01'

    RUN is a complete run directory. The certificate in RUN/certificate is judged; what it lacks is certified
    first. It must be about the weights and the data of RUN, and the kernel proves its upper sides again
    before they count. In GitHub Actions every outcome is also an annotation. Exit code 0: all requirements
    hold. 1: one fails, or a number of the certificate does not follow. 2: nothing was judged. 3: certus
    itself failed.
    """
    wanted = parsed(requirements)
    if junit is not None:
        require_file("--junit", junit)
    judged = [each for each in wanted if each.attack is None or each.attack.name == "certified"]
    attacks = [each for each in wanted if each not in judged]
    certified = open_certified_run(run, allow_code=allow_code, locking=not no_lock)
    parts, settings, source = [], None, None
    if judged:
        if file is None:
            source = _certified(certified, judged, confidence)
        else:
            source = file
            require(file.is_file(), "--certificate", "be a file, such as certificate.json", file)
            cli.refuse_unused({"confidence": "with --certificate, which has its own"})
        certificate, settings = checked_certificate(certified, source)
        parts.append(certificate.check(judged))
    elif file is not None:
        raise ArgumentError("`--certificate` must be left out: no requirement judges a certificate.")
    if attacks:
        parts.append(certified.attacked(attacks, settings, confidence or 0.95))
    result = _in_order(combined(parts), wanted)
    _show(result, source, junit, as_json=as_json)
    result.require()


def _in_order(result: GateResult, wanted: Sequence[Requirement]) -> GateResult:
    """Outcomes in the order in which their requirements were typed."""
    places = {requirement.text: place for place, requirement in reversed(list(enumerate(wanted)))}
    return replace(result, outcomes=tuple(sorted(result.outcomes, key=lambda each: places[each.requirement])))


def _certified(certified: CertifiedRun, wanted: Sequence[Requirement], confidence: float | None) -> Path:
    """Return the certificate of a run, certified anew if it lacks something: itself, a ρ, or the
    population."""
    from certus.certificates.files import read_certificate
    from certus.runs.directory import CERTIFICATE_FOLDER

    folder = certified.path / CERTIFICATE_FOLDER
    file, smoothed = folder / "certificate.json", folder / "smoothing.json"
    voted = any(requirement.quantity == "vote" for requirement in wanted)
    if voted and not smoothed.exists():
        remedy = f"`certus certify {certified.path} --smoothing SIGMA` writes it"
        raise ArgumentError(f"`--require vote` needs {smoothed}, which does not exist: {remedy}.")
    if voted or (smoothed.exists() and not file.exists()):
        return smoothed
    rhos = {requirement.rho for requirement in wanted if requirement.rho is not None}
    population = any(requirement.population for requirement in wanted)
    settings, lacking = certified.settings, [f"{file} does not exist"]
    if file.exists():
        settings, own = stated_settings(certified, file), read_certificate(file)
        lacking = [f"rho {rho:g} is not in it" for rho in sorted(rhos - {*own.rhos})]
        if population and own.population is None:
            lacking.append("it has no bounds for the population")
        if confidence is not None and settings.confidence != confidence:
            lacking.append(f"its confidence is not {confidence:g}")
        by_class = any(requirement.quantity in BY_CLASS for requirement in wanted)
        if by_class and own.statement.by_class is None and settings.label_cost is None:
            lacking.append("it has no rates by class")
        rhos |= {*own.rhos}
    if not lacking:
        return file
    if not rhos and certified.rho is None and any(each.attack is None for each in wanted):
        raise ArgumentError(
            f"`--require` must name a rho, such as error<=0.1@rho=0.01, for {certified.path}, which has "
            "neither a certificate nor a rho of its training."
        )
    rhos = rhos or {certified.rho or 0.0}
    level = confidence or settings.confidence or (0.95 if population else None)
    messages.print(f"Certifying {certified.path}: {'; '.join(lacking)}.")
    folder.mkdir(parents=True, exist_ok=True)
    certified.certify(replace(settings, rho=tuple(sorted(rhos)), confidence=level), file)
    return file


def _show(result: GateResult, source: Path | None, junit: Path | None, *, as_json: bool) -> None:
    from certus.display.render import parts_of

    if junit is not None:
        write_atomically(junit, result.junit().encode())
    in_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if as_json:
        print_json(result.as_json() | {"certificate": None if source is None else str(source)})
    else:
        for part in parts_of(result):
            console.print(part)
    if in_github:
        for line in result.annotations():
            if as_json:
                messages.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=results())
