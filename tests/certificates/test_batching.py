"""Certificates of samples that are read a portion at a time: the same numbers, and little in memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler
from torch.utils.data.sampler import BatchSampler, Sampler

from certus import Certificate, certify
from certus.certificates import batching, engine, local_bounds
from certus.certificates.cache import ProposalCache, differences
from certus.certificates.files import as_json
from certus.costs import LabelCost
from certus.data import Samples
from certus.errors import ArgumentError, LossError
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.losses import SquaredError
from certus.smoothing import certify_smoothed
from certus.storage.write import without_checksum
from tests.certificates.problems import network, samples

COUNT, PORTION = 18, 5
INPUTS, LABELS = samples(1, COUNT)
ASK: dict[str, Any] = {"rho": 0.1, "gammas": (8.0, 1.0), "local_radii": 1, "attack_steps": 1}


class Rows(Dataset[Any]):
    """A data set with a length."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of a few samples, of which nothing is kept."""
    monkeypatch.setattr(batching, "BATCH", PORTION)
    monkeypatch.setattr(batching, "_FACTOR", 1)
    monkeypatch.setattr(engine, "HELD", 0)


def told(certificate: Certificate) -> dict[str, Any]:
    return without_checksum(as_json(certificate))


def same(first: Certificate, second: Certificate) -> bool:
    """To 10⁻⁹ of every number, as two processors are allowed; levels to 10⁻¹²."""
    for one, other in zip(first.dual_values, second.dual_values, strict=True):
        assert torch.equal(one.rule, other.rule)
        for name in ("bound", "transport_cost", "loss", "attained_error_cost"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-14)
    return not differences(told(first), told(second))


WEIGHTS = torch.rand(COUNT, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a loader": ((INPUTS, LABELS), DataLoader(Rows(INPUTS, LABELS), batch_size=4), {"epsilon": 0.1}),
    "a data set": ((INPUTS, LABELS), Rows(INPUTS, LABELS), {"clip": 2.0}),
    "confidence": ((INPUTS, LABELS), DataLoader(Rows(INPUTS, LABELS), batch_size=11), {"confidence": 0.9}),
    "labels": ((INPUTS, LABELS), Rows(INPUTS, LABELS), {"label_cost": LabelCost(0.05, 3)}),
    "weights": (Samples(INPUTS, LABELS, WEIGHTS), Samples(INPUTS, LABELS, WEIGHTS), {}),
    "predicted": ((INPUTS, None), (INPUTS, None), {}),
    "regression": (
        (INPUTS, INPUTS[:, 0]),
        Rows(INPUTS, INPUTS[:, 0]),
        {"criterion": SquaredError(), "clip": 3.0},
    ),
}


@pytest.mark.quick_share(3)
@pytest.mark.parametrize(("held", "streamed", "options"), CASES.values(), ids=CASES.keys())
def test_portions_change_no_number(
    held: Any, streamed: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network("tanh", 1, classes=1 if "criterion" in options else 3)
    whole = certify(model, held, **ASK | options)
    points, shares = whole.worst_case_data(0.1)
    monkeypatch.setattr(batching, "BATCH", PORTION)
    monkeypatch.setattr(engine, "HELD", 1)
    parts = certify(model, streamed, **ASK | options)
    assert same(whole, parts)
    again, others = parts.worst_case_data(0.1)
    torch.testing.assert_close(again.inputs, points.inputs, rtol=1e-9, atol=1e-12)
    assert torch.equal(again.targets, points.targets)
    torch.testing.assert_close(others, shares, rtol=1e-12, atol=0)


class _Stopped(ProposalCache):
    """Interrupted when some levels are kept."""

    def save(self, gamma: float, portion: int, moves: Tensor) -> None:
        if self.count == 9:
            raise KeyboardInterrupt
        super().save(gamma, portion, moves)


@pytest.mark.usefixtures("small")
def test_an_interrupted_certification_goes_on_within_a_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine levels of portions are kept: all four γ of two portions, and one of the third."""
    ask: dict[str, Any] = {"rho": 0.1, "gammas": (8.0, 4.0, 2.0, 1.0), "gamma_rounds": 0, "attack_steps": 0}
    model, data = network("tanh", 1), Rows(INPUTS, LABELS)
    whole = certify(model, data, **ask)
    with pytest.raises(KeyboardInterrupt):
        certify(model, data, cache=_Stopped(tmp_path, "question"), **ask)
    said: list[str] = []
    solved: list[tuple[int, float]] = []
    save = ProposalCache.save

    def counted(self: ProposalCache, gamma: float, portion: int, moves: Tensor) -> None:
        solved.append((portion, gamma))
        save(self, gamma, portion, moves)

    monkeypatch.setattr(ProposalCache, "save", counted)
    again = certify(model, data, cache=ProposalCache(tmp_path, "question", said.append), **ask)
    assert solved == [(2, 4.0), (2, 2.0), (2, 1.0), (3, 8.0), (3, 4.0), (3, 2.0), (3, 1.0)]
    assert said == []
    assert told(again) == told(whole)


@pytest.mark.usefixtures("small")
def test_little_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four times more samples no more surroundings are alive at once; HELD of them stay on purpose."""
    seen: list[weakref.ref[Neighborhoods]] = []
    alive: list[int] = []

    def watched(*arguments: Any) -> Neighborhoods:
        alive.append(sum(one() is not None for one in seen))
        found = neighborhoods(*arguments)
        seen.append(weakref.ref(found))
        return found

    monkeypatch.setattr(local_bounds, "neighborhoods", watched)
    model = network("tanh", 1)
    for held, times in ((0, 1), (2, 1), (0, 4), (2, 4)):
        monkeypatch.setattr(engine, "HELD", held)
        seen.clear()
        alive.clear()
        data = Rows(INPUTS.repeat(times, 1), LABELS.repeat(times))
        certify(model, data, rho=0.1, gammas=(4.0, 1.0), local_radii=0, gamma_rounds=1, attack_steps=0)
        assert max(alive) == held
        assert len(alive) > 4 * times  # more than one reading looked around


def test_a_loader_that_shuffles_by_torchs_seed_is_read_in_one_order() -> None:
    loader = DataLoader(Rows(INPUTS, LABELS), batch_size=7, shuffle=True)
    ask: dict[str, Any] = ASK | {"local_radii": 0}
    model = network("tanh", 1)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = certify(model, loader, **ask)
    assert torch.equal(before, torch.get_rng_state())
    whole = certify(model, (INPUTS, LABELS), **ask)
    assert found.bound(0.1) == pytest.approx(whole.bound(0.1), rel=1e-12)
    assert not torch.equal(found.dual_values[0].bound, whole.dual_values[0].bound)
    first, second = (one.dual_values[0].bound.sort().values for one in (found, whole))
    torch.testing.assert_close(first, second, rtol=1e-12, atol=0)


class Once(IterableDataset[Any]):
    """Nothing is left for a second reading."""

    def __init__(self) -> None:
        self.rows = iter(list(zip(INPUTS, LABELS, strict=True)))

    def __iter__(self) -> Iterator[Any]:
        return self.rows


@pytest.mark.parametrize("kind", ["shuffled", "transformed", "once", "shorter"])
def test_data_that_change_are_refused(kind: str) -> None:
    data: Any = Once()
    if kind == "shuffled":
        own = torch.Generator().manual_seed(0)
        data = DataLoader(Rows(INPUTS, LABELS), batch_size=COUNT, shuffle=True, generator=own)
    elif kind in ("transformed", "shorter"):
        readings: list[int] = []

        class Changing(Rows):
            def __len__(self) -> int:
                return COUNT - (len(readings) >= COUNT) if kind == "shorter" else COUNT

            def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
                readings.append(index)
                return self.inputs[index] + (len(readings) if kind != "shorter" else 0), self.targets[index]

        data = Changing(INPUTS, LABELS)
    with pytest.raises(ArgumentError, match=r"`data` must return the same samples in the same order"):
        certify(network("tanh", 1), data, **ASK)


def test_a_generator_is_kept_whole() -> None:
    model = network("tanh", 1)
    batches = ((INPUTS[at : at + 4], LABELS[at : at + 4]) for at in range(0, COUNT, 4))
    assert told(certify(model, batches, **ASK)) == told(certify(model, (INPUTS, LABELS), **ASK))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (INPUTS.index_fill(0, torch.tensor([12]), torch.nan), LABELS, r"sample 2\. \(Counted from sample 10"),
        (INPUTS, LABELS.index_fill(0, torch.tensor([9]), 5), r"5.* \(Counted from sample 5 on"),
    ],
    ids=["nan", "label"],
)
def test_all_samples_are_checked_before_anything_is_computed(
    inputs: Tensor, labels: Tensor, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_bounds, "neighborhoods", None)
    with pytest.raises((ArgumentError, LossError), match=message):
        certify(network("tanh", 1), Rows(inputs, labels), rho=0.1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "hold at least one batch"),
        ([(torch.zeros(8, 2), torch.zeros(8).long()), (torch.zeros(8, 3), torch.zeros(8).long())], "shape"),
    ],
    ids=["empty", "shapes"],
)
@pytest.mark.usefixtures("small")
def test_portions_that_are_none(data: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        certify(network("tanh", 1), data, rho=0.1)


WEIGHTS = torch.linspace(0.2, 3, COUNT)


def _weighted() -> Iterator[Samples]:
    for at in range(0, COUNT, 4):
        yield Samples(INPUTS, LABELS, WEIGHTS)[at : at + 4]


def test_weights_of_batches_are_never_lost() -> None:
    model = network("tanh", 1)
    whole = certify(model, Samples(INPUTS, LABELS, WEIGHTS), **ASK)
    assert whole.bound(0.1) != certify(model, (INPUTS, LABELS), **ASK).bound(0.1)
    assert told(certify(model, _weighted(), **ASK)) == told(whole)
    batches: Any = list(_weighted())
    with pytest.raises(ArgumentError, match="`data` must be one `Samples` object if samples have weights"):
        certify(model, batches, **ASK)
    with pytest.raises(ArgumentError, match="got 1 of 2 batches"):
        certify(model, iter([next(_weighted()), (INPUTS, LABELS)]), **ASK)
    with pytest.raises(ArgumentError, match="`data` must have no weights"):
        certify_smoothed(model, batches, rho=0.1, sigma=0.5)


class Everywhere(IterableDataset[Any]):
    """Rows that every worker gives."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(INPUTS, LABELS, strict=True)


ROWS = Rows(INPUTS, LABELS)
REPEATING: dict[str, Sampler[int]] = {
    "weighted": WeightedRandomSampler(WEIGHTS.tolist(), COUNT),
    "replacement": RandomSampler(range(COUNT), replacement=True),
    "more": RandomSampler(range(COUNT), num_samples=2 * COUNT),
}
DRAWN: dict[str, Any] = {
    "weights": Samples(INPUTS, LABELS, WEIGHTS),
    **{name: DataLoader(ROWS, sampler=sampler) for name, sampler in REPEATING.items()},
    "batches": DataLoader(ROWS, batch_sampler=BatchSampler(REPEATING["weighted"], 4, drop_last=False)),
    "workers": DataLoader(Everywhere(), num_workers=2),
}


@pytest.mark.parametrize(
    "way",
    [partial(certify, confidence=0.9), partial(certify_smoothed, sigma=0.5)],
    ids=["exact", "smoothing"],
)
@pytest.mark.parametrize("name", DRAWN)
def test_a_confidence_needs_independent_draws(name: str, way: Any) -> None:
    with pytest.raises(ArgumentError, match="`data` must be independent draws from a population"):
        way(network("tanh", 1), DRAWN[name], rho=0.1)


def test_a_loader_that_shuffles_is_an_independent_draw() -> None:
    loader = DataLoader(ROWS, batch_size=4, shuffle=True)
    found = certify(network("tanh", 1), loader, rho=0.1, confidence=0.9, local_radii=0, attack_steps=0)
    assert found.bracket(0.1).population_loss is not None
