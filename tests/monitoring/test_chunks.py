"""Chunks by time, their levels, random subsets of streams, and budgets from history."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus.errors import ArgumentError
from certus.monitoring import Monitor
from certus.monitoring.chunks import plausible_budget
from certus.monitoring.reading import Batch, Rows, grouped_rows
from tests.monitoring.test_monitor import labels, linear, rows


@pytest.fixture(scope="module")
def monitor() -> Monitor:
    inputs = rows(0)
    return Monitor(certus.certify(linear(), (inputs, labels(inputs)), rho=0.01, progress=False))


def test_quarters_share_the_level_and_only_those_that_moved_cry(monitor: Monitor) -> None:
    dates = np.arange("2016-01-01", "2017-01-01", dtype="datetime64[D]")
    inputs = rows(1, len(dates))
    inputs[dates >= np.datetime64("2016-07-01")] += 1.0
    results = monitor.chunks(inputs, labels(inputs), by="quarter", dates=dates)
    assert [result.name for result in results] == ["2016-Q1", "2016-Q2", "2016-Q3", "2016-Q4"]
    assert [result.rows for result in results] == [91, 91, 92, 92]
    assert [result.alarm for result in results] == [False, False, True, True]
    assert {result.level for result in results} == {0.05 / 4}
    more = monitor.chunks(inputs, by="quarter", dates=dates, horizon=20)
    assert {result.level for result in more} == {0.05 / 20}


def test_a_chunk_is_what_a_check_of_its_rows_says(monitor: Monitor) -> None:
    inputs = rows(2, 100)
    first, second = monitor.chunks(inputs, by=50)
    assert (first.name, second.name) == ("000001", "000002")
    alone = monitor.check(inputs[50:], level=0.025)
    assert (alone.distance, alone.p_value) == (second.distance, second.p_value)


def test_batches_of_any_size_give_the_same_subset() -> None:
    """A uniformly random subset: independent of the batches, different for other seeds."""
    whole = torch.arange(1000.0).unsqueeze(1)

    def held(size: int, seed: int) -> Rows:
        parts = (Batch(part, None) for part in whole.split(size))
        return grouped_rows(parts, None, 50, seed)[""]

    first = held(1000, 0)
    assert (len(first.inputs), first.total) == (50, 1000)
    for size in (7, 100, 999):
        assert torch.equal(held(size, 0).inputs, first.inputs)
    assert not torch.equal(held(100, 1).inputs, first.inputs)
    # Every row is as likely: the mean of a subset's rows, over seeds.
    means = [float(held(250, seed).inputs.mean()) for seed in range(200)]
    assert np.mean(means) == pytest.approx(499.5, abs=4 * 289 / (50 * 200) ** 0.5)


def test_loaders_are_read_in_batches(monitor: Monitor) -> None:
    inputs = rows(3, 90)
    loader = DataLoader(TensorDataset(inputs, labels(inputs)), batch_size=16)
    streamed, whole = monitor.check(loader), monitor.check(inputs, labels(inputs))
    assert (streamed.distance, streamed.realised) == (whole.distance, whole.realised)


def test_what_is_no_chunk_is_refused(monitor: Monitor) -> None:
    inputs = rows(4, 60)
    for options, message in (
        ({"by": "month"}, "`dates` must be given for rows that are no table"),
        ({"by": "month", "dates": ["soon"] * 60}, "`dates` must be dates"),
        ({"by": "month", "dates": np.array(["2016-01-01"])}, "`dates` must have a date for every"),
        ({"by": "town"}, "`by` must be left out: no table"),
        ({"by": 5}, "`by` must be a whole number, at least 20"),
        ({"by": 20, "horizon": 2}, "`horizon` must be at least the number of chunks, 3"),
    ):
        with pytest.raises(ArgumentError, match=message):
            monitor.chunks(inputs, **options)


def test_a_budget_from_history_is_the_move_between_chunks() -> None:
    """Chunks that move by 0.5 each: the largest move is between the first and the last, 1.0² in
    one column."""
    groups = {str(at): Rows(rows(at, 800) + at * torch.tensor([0.5, 0.0]), None, 800) for at in range(3)}
    budget = plausible_budget(groups, np.ones(2), quantile=1.0)
    assert budget.rho == pytest.approx(1.0, abs=0.15)
    assert plausible_budget(groups, np.ones(2), quantile=0.0).rho == pytest.approx(0.25, abs=0.1)
    assert (budget.chunks, len(budget.moves)) == (3, 3)
    assert "estimated" in budget.words
    still = {str(at): Rows(rows(at, 800), None, 800) for at in range(4)}
    assert plausible_budget(still, np.ones(2), quantile=0.9).rho < 0.02
    with pytest.raises(ArgumentError, match="`history` must have at least 2 chunks"):
        plausible_budget({"a": still["0"]}, np.ones(2))
