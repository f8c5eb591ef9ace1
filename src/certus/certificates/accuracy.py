"""Certified accuracy at a distance: the question that the literature asks of every sample by itself.

    P_n(r > ε) ≥ P_n(r̲ > ε) = certified,        P_n(r > ε) ≤ P_n(r found > ε) = attacked,

where r is the distance of a sample's nearest error in the cost's norm, 0 if it is one already: the share that
is classified rightly whatever moves a sample by at most ε. With c ≥ g‖x − x₀‖², g the unit price, r̲ and the
distance of an error that was found are √(τ/g) with τ as certified, and as found. A label that may change at a
finite price counts as a move of that cost.

For the population both shares are distribution functions of one number per sample. DKW bounds them for all ε
at once, and together with all else that a certificate says with confidence. Clopper and Pearson's bounds are
closer, for one ε that was fixed beforehand, and for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from certus.certificates.alarm import check_accuracy
from certus.certificates.proven.concentration import clopper_pearson
from certus.errors import UnsupportedError, require_number
from certus.outward import SOME, down, slack, up

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate


@dataclass(frozen=True)
class AccuracyBracket:
    """The share of samples that no move of length ε misleads; None where a quantity does not apply.

    Attributes:
        certified, attacked: at least (proven), and at most (attained: the others were misled).
        population_certified, population_attacked: the same of the population, for all ε at once, with the
            confidence of the certificate for all that it says.
        fixed_certified, fixed_attacked: the same for this ε alone, fixed beforehand, with that confidence for
            these two and nothing else.
    """

    epsilon: float
    certified: float
    attacked: float
    population_certified: float | None = None
    population_attacked: float | None = None
    fixed_certified: float | None = None
    fixed_attacked: float | None = None


def accuracy_bracket(certificate: Certificate, epsilon: float) -> AccuracyBracket:
    """All of it at one ε; raises ``ContradictionError`` where an attained side is below a proven one."""
    distance, count = require_number("epsilon", epsilon, zero=True), certificate.samples
    price = distance**2 * certificate.unit_price
    if certificate.error_found is None:
        raise UnsupportedError("A regression has no certified accuracy: without classes there are no errors.")
    # Without a proof nothing is certified.
    certified = 0 if certificate.error_floor is None else _beyond(certificate.error_floor, price)
    found = AccuracyBracket(epsilon, certified / count, _unmoved(certificate.error_found, price) / count)
    people = certificate.population
    if people is not None:
        assert people.error_margin is not None
        assert people.error_margin_low is not None
        assert people.error_found is not None
        # Only searches that were fixed beforehand count.
        left, failure = _unmoved(people.error_found, price), (1 - people.confidence) / 2
        found = AccuracyBracket(
            epsilon,
            found.certified,
            found.attacked,
            max(0.0, certified / count - up(people.error_margin, SOME) - slack(count)),
            min(1.0, left / count + up(people.error_margin_low, SOME) + slack(count)),
            clopper_pearson(certified, count, failure),
            1 - clopper_pearson(count - left, count, failure),
        )
    check_accuracy(certificate, found)
    return found


def _beyond(floor: Tensor, price: float) -> int:
    """How many cost more than this, whatever was rounded."""
    return int((floor > up(price, SOME)).sum())


def _unmoved(found: Tensor, price: float) -> int:
    """How many were not found to be misled at this cost."""
    return int((~(found <= down(price, SOME))).sum())
