"""``certus certify --smoothing``: the table of a certificate by smoothing."""

from __future__ import annotations

from pathlib import Path

from certus.certificates.smoothing.noisy_certificate import SmoothedCertificate
from certus.cli.output import console, make_table, messages, print_json
from certus.cli.progress import counting
from certus.decimals import at_least, at_most
from certus.runs.certification import CertifySettings, certified_data
from certus.runs.noisy_certification import NoisySettings, certify_noisy_run
from certus.runs.trained import TrainedRun

READ_ONLY = "with --smoothing, which asks the network for predictions and reads nothing of it"
IDLE_WITH_NOISE = ("epsilon", "inequality", "predicted", "gamma", "balls", "refine", "everywhere")
IDLE_WITHOUT = ("draws", "votes", "abstain")
_NAME = "smoothing.json"


def certify_in_noise(
    trained: TrainedRun, settings: CertifySettings, noisy: NoisySettings, folder: Path, as_json: bool
) -> SmoothedCertificate:
    """Compute, write and show it."""
    count = len(certified_data(trained, settings).data)
    with counting(messages, f"certifying {trained.run.path} in noise", count * noisy.draws) as advance:
        certificate = certify_noisy_run(trained, settings, noisy, advance)
    folder.mkdir(parents=True, exist_ok=True)
    certificate.save(folder / _NAME)
    if as_json:
        print_json(certificate.as_json())
    else:
        _show(certificate)
        console.print(f"Written: {folder / _NAME}.")
    return certificate


def _show(certificate: SmoothedCertificate) -> None:
    for rho in certificate.rhos:
        certificate.bracket(rho)  # which raises where sides contradict each other
    for one in certificate.quantities:
        ideal = one.name == "ideal_vote"
        sides = ("ideal vote at most",) if ideal else (f"{one.name} at least", "at most")
        table = make_table("rho", "distance", *sides)
        for rho in certificate.rhos:
            high = at_most(one.high(rho)) + (" vacuous" if one.high(rho) >= one.ceiling else "")
            cells = (high,) if ideal else (at_least(one.low(rho)), high)
            table.add_row(f"{rho:g}", f"{rho**0.5:.3g}", *cells)
        console.print(table)
    about = certificate.about
    console.print(
        f"About {about['rows']['words']}. Distance: the root of rho, in {about['units']}. "
        f"At least: attained, at fresh noise; at most: {certificate.evidence}. {certificate.statement}"
    )
    console.print(
        f"Error: of one noisy draw; vote: of {certificate.votes} draws, abstaining at level "
        f"{certificate.abstain}, abstentions included; ideal vote: of infinitely many. "
        f"{certificate.draws} draws of each sample; {certificate.calibrated} other samples chose the plan."
    )
