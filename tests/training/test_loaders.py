"""Whatever form samples come in, training sees the same numbers, and what it cannot take it names."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from certus import WRM
from certus.data import Samples
from certus.errors import ArgumentError
from certus.training import Callback, TrainingState, fit
from certus.training.loaders import make_loader

INPUTS = torch.linspace(-1, 1, 90).reshape(30, 3)
LABELS = (INPUTS.sum(1) > 0).long()


class Pairs(Dataset[tuple[Tensor, int]]):
    """Samples one by one, with noise of torch's own random numbers where asked."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return INPUTS[index] + self.noise * torch.randn(3), int(LABELS[index])


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield from ((row, int(label)) for row, label in zip(INPUTS, LABELS, strict=True))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 2))


def weights(data: Any, **options: Any) -> list[Tensor]:
    done = fit(network(), data, method=WRM(gamma=2.0), epochs=2, **options)
    return [weight.detach() for weight in done.model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "data",
    [
        (INPUTS, LABELS),
        (INPUTS.numpy().astype(np.float64), LABELS.numpy().astype(np.int32)),
        (pd.DataFrame(INPUTS.numpy(), columns=list("abc")), pd.Series(LABELS.numpy())),
        (INPUTS.tolist(), LABELS.tolist()),
        TensorDataset(INPUTS, LABELS),
        Pairs(),
    ],
    ids=["tensors", "arrays", "frame", "lists", "tensor-dataset", "dataset"],
)
def test_every_form_trains_the_same_network(data: Any) -> None:
    """The order is the seed's, whatever the samples are kept in."""
    assert same(weights(data, batch_size=8), weights(Samples(INPUTS, LABELS), batch_size=8))


def test_a_loader_has_its_own_order_and_batches() -> None:
    """Plain torch on the same batches gives the same network."""
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=7)
    ours = network()
    fit(ours, loader, epochs=2, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
    theirs = network()
    for _ in range(2):
        for inputs, labels in loader:
            theirs.zero_grad()
            nn.functional.cross_entropy(theirs(inputs), labels).backward()
            with torch.no_grad():
                for weight in theirs.parameters():
                    assert weight.grad is not None
                    weight.sub_(0.1 * weight.grad)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("data", [Stream(), DataLoader(Stream(), batch_size=8)], ids=["dataset", "loader"])
def test_data_without_a_length_are_read_in_their_order(data: Any) -> None:
    size = {} if isinstance(data, DataLoader) else {"batch_size": 8}
    listed = [(INPUTS[at : at + 8], LABELS[at : at + 8]) for at in range(0, 30, 8)]
    assert same(weights(data, **size), weights(listed))


def test_random_loaders_and_transforms_repeat() -> None:
    """Shuffled, with noise on the samples: a function of the seed, also from the middle of an epoch on."""
    loader = DataLoader(Pairs(noise=0.1), batch_size=8, shuffle=True)
    assert same(weights(loader, seed=3), weights(loader, seed=3))
    assert not same(weights(loader, seed=3), weights(loader, seed=4))
    stream = make_loader(loader, network(), None, seed=3)
    with torch.random.fork_rng():
        whole = [batch.inputs for _, batch, _ in stream.epoch(1)]
        late = [batch.inputs for _, batch, _ in stream.epoch(1, first=2)]
    assert len(late) == len(whole) - 2
    assert same(late, whole[2:])
    indexed = make_loader(Pairs(noise=0.1), network(), 8, seed=3)
    with torch.random.fork_rng():
        whole = [batch.inputs for _, batch, _ in indexed.epoch(1)]
        late = [batch.inputs for _, batch, _ in indexed.epoch(1, first=2)]
    assert same(late, whole[2:])


def test_processes_share_every_batch_of_a_loader() -> None:
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=7, shuffle=True)
    loaders = [make_loader(loader, network(), None, 0, rank=rank, processes=2) for rank in (0, 1)]
    with torch.random.fork_rng():
        shares = [[(batch.inputs, whole) for _, batch, whole in one.epoch(0)] for one in loaders]
    rows = [tuple(row.tolist()) for share in shares for inputs, _ in share for row in inputs]
    assert sorted(rows) == sorted(tuple(row.tolist()) for row in INPUTS)
    assert [whole for _, whole in shares[0]] == [7, 7, 7, 7, 2]


class Loader:
    """A loader of so many batches that knows how many of them are alive at once."""

    def __init__(self, batches: int) -> None:
        self.batches, self.most, self._alive = batches, 0, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self.batches):
            inputs = INPUTS[:8].clone()
            self._alive += 1
            self.most = max(self.most, self._alive)
            weakref.finalize(inputs.untyped_storage(), self._gone)
            yield inputs, LABELS[:8]

    def _gone(self) -> None:
        self._alive -= 1


@pytest.mark.parametrize("batches", [10, 100])
def test_training_keeps_a_few_batches_at_once_however_many_there_are(batches: int) -> None:
    """Steps and the pass that measures the level read on, and let go: memory does not grow with the data."""
    loader = Loader(batches)
    fit(network(), loader, method=WRM(gamma=2.0), epochs=2)
    assert loader.most <= 4


class Told(Callback):
    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self.steps = steps


def test_a_callback_receives_an_unknown_length() -> None:
    watcher = Told()
    fit(network(), Stream(), epochs=1, batch_size=8, callbacks=[watcher])
    assert watcher.steps is None


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (((INPUTS, LABELS) for _ in range(3)), {}, "got a generator, which is read once. Give a DataLoader"),
        ([{"x": INPUTS, "y": LABELS}], {}, r"must give \(inputs, targets\); got a dict of x, y"),
        ([INPUTS], {}, r"must give \(inputs, targets\); got Tensor"),
        (INPUTS, {}, "must be Samples, .*; got <class 'torch.Tensor'>"),
        ((INPUTS, LABELS[:9]), {}, r"must have one entry for each .* \(30, 3\); got shape \(9,\)"),
        ((np.array([["a"], ["b"]]), np.array([0, 1])), {}, "`inputs` must be numbers; got an array of <U1"),
        ((torch.zeros(4, 8, 8, dtype=torch.uint8), LABELS[:4]), {}, "be scaled, as by inputs / 255"),
        (pd.DataFrame({"a": [1.0]}), {}, "from_frame"),
        ("digits", {}, r"certus\.datasets\.load\('digits'\)"),
        ((pd.DataFrame({"a": [1.0], "job": ["x"]}), [0]), {}, "in column 'job'"),
        (DataLoader(Pairs(), batch_size=7), {"batch_size": 8}, "be left out for a loader, .* 7; got 8"),
        ([], {}, "hold at least one batch; got none"),
        ((INPUTS, LABELS), {"optimizer": "sgd"}, "a function from parameter groups to one, .*; got 'sgd'"),
        ((INPUTS, LABELS), {"optimizer": lambda groups: 1}, "make an optimizer.*; got <class 'int'>"),
        ((INPUTS, LABELS), {"method": "wrm"}, r"certus.WRM\(gamma=...\).*; got 'wrm'"),
        ((INPUTS, LABELS), {"method": "pgd"}, r"certus.attacks.PGD\(epsilon\).*; got 'pgd'"),
    ],
)
def test_unsupported_data_are_named(data: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        fit(network(), data, epochs=1, **options)


def test_an_optimizer_is_the_models_own() -> None:
    model, other = network(), network()
    with pytest.raises(ArgumentError, match="got 0 of its 4, and 4 others"):
        fit(model, (INPUTS, LABELS), optimizer=torch.optim.Adam(other.parameters()))
    with pytest.raises(ArgumentError, match="`weight_decay` must be left out: the optimizer has its own"):
        fit(model, (INPUTS, LABELS), optimizer=torch.optim.Adam(model.parameters()), weight_decay=0.1)
