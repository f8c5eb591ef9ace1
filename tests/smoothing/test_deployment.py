"""The deployed vote: its labels, its radii and its abstentions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

import certus
from certus.errors import ArgumentError, UnsupportedError
from certus.smoothing.predictors import ABSTAINED
from certus.smoothing.voting import vote_labels, voting_rule
from tests.smoothing.test_certify_smoothed import signs


def test_votes_are_counted() -> None:
    labels = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 0, 1, 2], [3, 3, 3, 3, 3]], dtype=torch.int32)
    assert vote_labels(labels, voting_rule(5)).tolist() == [0, ABSTAINED, 3]
    assert vote_labels(labels, voting_rule(5, 0.1)).tolist() == [ABSTAINED, ABSTAINED, 3]
    # With one label in all, nobody is second: five votes against none have the level 2/32.
    assert vote_labels(labels[2:], voting_rule(5, 2 / 32)).tolist() == [3]


def test_the_vote_errs_as_often_as_its_ballot_says() -> None:
    """At a fixed distance from a half-space, over many votes; abstentions count."""
    model = certus.smoothing.Smoothed(signs, sigma=0.5, votes=15, abstain=0.2)
    inputs = torch.full((3000, 1), 0.15, dtype=torch.float64)
    lost = float((model.predict(inputs) != 1).double().mean())
    rule = voting_rule(15, 0.2)
    exact = binom.sf(rule.failure_threshold - 1, 15, norm.cdf(-0.15 / 0.5))
    assert lost == pytest.approx(exact, abs=0.03)


def test_radii_are_below_the_distance_to_the_edge() -> None:
    inputs = torch.tensor([[1.0], [-0.4], [0.01], [3.0]], dtype=torch.float64)
    found = certus.smoothing.Smoothed(signs, sigma=0.5).radius(inputs, draws=2000, confidence=0.999)
    assert found.labels.tolist() == [1, 0, ABSTAINED, 1]
    assert bool((found.radius <= inputs[:, 0].abs()).all())
    assert float(found.radius[0]) > 0.8
    assert float(found.radius[2]) == 0.0


def test_calls_go_on_with_fresh_noise() -> None:
    seen: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []

    def watched(points: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> object:
        seen.append(points)
        return signs(points)

    model = certus.smoothing.Smoothed(watched, sigma=0.5, votes=10)
    for _ in range(2):
        model.predict(torch.zeros(1, 1, dtype=torch.float64))
    assert len(np.unique(np.concatenate(seen))) == 20


def test_a_model_is_tried_where_it_is_asked() -> None:
    """Near 0 it answers for each input by itself; near the input it looks at the others."""

    def crowd(points: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> object:
        edge = np.median(points[:, 0]) if points[0, 0] > 30 else 0.0
        return (points[:, 0] > edge).astype(int)

    model = certus.smoothing.Smoothed(crowd, sigma=0.5)
    assert model.radius(torch.full((1, 1), 2.0), draws=100).labels.tolist() == [1]
    with pytest.raises(UnsupportedError, match="must be deterministic and treat every input"):
        model.radius(torch.full((1, 1), 50.0))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5])
def test_a_radius_needs_a_confidence(confidence: float) -> None:
    with pytest.raises(ArgumentError, match=f"`confidence` must lie between 0 and 1; got {confidence}"):
        certus.smoothing.Smoothed(signs, sigma=1.0).radius(torch.ones(1, 1), draws=10, confidence=confidence)


def test_misuse_is_named() -> None:
    with pytest.raises(ArgumentError, match="`sigma` must be positive"):
        certus.smoothing.Smoothed(signs, sigma=-1.0)
    with pytest.raises(ArgumentError, match="`draws` must be a whole number, at least 2; got 1"):
        certus.smoothing.Smoothed(signs, sigma=1.0).radius(torch.zeros(1, 1), draws=1)
