"""A certificate by smoothing as tables, and in words."""

from __future__ import annotations

from certus.decimals import at_least, at_most
from certus.smoothing.certificate import SmoothedCertificate
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
        f"At least: attained by moves that were found, measured with fresh noise; at most: "
        f"{certificate.evidence}. {certificate.statement}"
    )
    told = (
        f"{certificate.draws} noisy copies of each sample were drawn; {certificate.calibrated} other samples "
        "were used to choose the grid of gamma and the weights of the bound."
    )
    names = {one.name for one in certificate.quantities}
    if "vote" in names:
        told = (
            f"Error: error rate of one noisy prediction. Vote: error rate of a majority vote of "
            f"{certificate.votes} noisy predictions that abstains at level {certificate.abstain}; "
            f"abstentions count as errors. Ideal vote: a vote of infinitely many. {told}"
        )
    return [*parts, told]
