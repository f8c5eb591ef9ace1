"""Networks as people write them: no ascent exceeds a bound on curvature, slope or loss."""

from __future__ import annotations

import pytest

import certus
from certus.errors import UnsupportedError
from tests.bounds.attacked import attack_animal
from tests.bounds.zoo import KINKED_ZOO, REFUSED_ZOO, SMOOTH_ZOO

QUICK = ("mlp", "tangled")
"""The others take seconds each."""

ALL = SMOOTH_ZOO | KINKED_ZOO


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_share(name: str) -> None:
    assert attack_animal(ALL[name], 6).violations == []


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_all_of_them(name: str) -> None:
    assert attack_animal(ALL[name], 20).violations == []


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_all_of_them_in_full_size(name: str) -> None:
    assert attack_animal(ALL[name], 4, full=True).violations == []


@pytest.mark.parametrize("name", REFUSED_ZOO)
def test_calls_without_a_rule_are_named_with_their_line(name: str) -> None:
    animal, function, code = REFUSED_ZOO[name]
    with pytest.raises(UnsupportedError, match=function) as caught:
        certus.input_smoothness(animal.make(), input_shape=animal.shape)
    assert "zoo.py:" in str(caught.value)
    assert code in str(caught.value)
