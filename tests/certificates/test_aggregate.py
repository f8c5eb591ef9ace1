"""A line of a certificate says which rules it rests on, and rounds each mean outward."""

from __future__ import annotations

from fractions import Fraction

import torch

from certus.certificates.dual_values import DualAggregate, DualValues
from certus.kernel.rules import Rule


def test_a_line_by_hand() -> None:
    kinds = list(Rule)
    rules = torch.tensor([int(kinds[0])] * 3 + [int(kinds[1])])
    values = torch.tensor([0.1, 0.2, 0.3, 0.7], dtype=torch.float64)
    mean = sum(Fraction(value) for value in values.tolist()) / 4
    found = DualAggregate.of(
        DualValues(
            2.0, bound=values, rule=rules, loss=values, transport_cost=values, attained_error_cost=values
        )
    )
    assert found.rules == {kinds[0].name.lower(): 0.75, kinds[1].name.lower(): 0.25}
    assert mean <= Fraction(found.bound) <= mean * (1 + Fraction(1, 10**9))
    assert mean <= Fraction(found.rho_hat) <= mean * (1 + Fraction(1, 10**9))
    assert mean * (1 - Fraction(1, 10**9)) <= Fraction(found.loss) <= mean
