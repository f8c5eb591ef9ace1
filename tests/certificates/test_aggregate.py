"""A line of a certificate says which rules it rests on, and rounds each mean outward."""

from __future__ import annotations

from fractions import Fraction

import torch

from certus.certificates.dual_values import DualAggregate
from certus.kernel.rules import Rule
from certus.kernel.statement import Statement
from tests.certificates.problems import dual_values, sample_values


def test_a_line_by_hand() -> None:
    kinds = list(Rule)
    rules = torch.tensor([int(kinds[0])] * 3 + [int(kinds[1])])
    values = torch.tensor([0.1, 0.2, 0.3, 0.7], dtype=torch.float64)
    mean = sum(Fraction(value) for value in values.tolist()) / 4
    level = dual_values(2.0, values, values, values, rules)
    found = DualAggregate.of(level)
    bound = Statement.of(sample_values(values).bounds, [level.bounds]).means[2.0]
    assert found.rules == {kinds[0].name.lower(): 0.75, kinds[1].name.lower(): 0.25}
    assert mean <= Fraction(bound) <= mean * (1 + Fraction(1, 10**9))
    assert mean <= Fraction(found.rho_hat) <= mean * (1 + Fraction(1, 10**9))
    assert mean * (1 - Fraction(1, 10**9)) <= Fraction(found.loss) <= mean
