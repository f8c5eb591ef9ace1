"""A certificate by smoothing as tables, and in words."""

from __future__ import annotations

from certus.certificates.smoothing.noisy_certificate import SmoothedCertificate
from certus.decimals import at_least, at_most
from certus.texts.certificate_words import about_words
from certus.texts.plain_text import Shown, make_table


def smoothed_parts(certificate: SmoothedCertificate) -> list[Shown]:
    """A table for each quantity; raises where sides contradict each other."""
    parts: list[Shown] = []
    certificate.curve()
    for one in certificate.quantities:
        ideal = one.name == "ideal_vote"
        sides = ("ideal vote at most",) if ideal else (f"{one.name} at least", "at most")
        table = make_table("rho", "distance", *sides)
        for rho in certificate.rhos:
            high = at_most(one.high(rho)) + (" vacuous" if one.high(rho) >= one.ceiling else "")
            cells = (high,) if ideal else (at_least(one.low(rho)), high)
            table.add_row(f"{rho:g}", f"{rho**0.5:.3g}", *cells)
        parts.append(table)
    parts.append(
        f"{about_words(certificate.about, certificate.samples)} "
        f"At least: attained, at fresh noise; at most: {certificate.evidence}. {certificate.statement}"
    )
    told = f"{certificate.draws} draws of each sample; {certificate.calibrated} other samples chose the plan."
    names = {one.name for one in certificate.quantities}
    if "vote" in names:
        told = (
            f"Error: of one noisy draw; vote: of {certificate.votes} draws, abstaining at level "
            f"{certificate.abstain}, abstentions included; ideal vote: of infinitely many. {told}"
        )
    return [*parts, told]
