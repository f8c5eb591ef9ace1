"""Orders and subsets: Philox written out, shares of labels, every row as likely as any other."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy.stats import binom, chi2

from certus.data import Samples, Subset, choose_rows, halves, random_order
from certus.errors import ArgumentError

MASK = 2**64 - 1


def philox(seed: int, stream: int, count: int) -> list[int]:
    """The outputs of Philox 4x64-10 (Salmon, Moraes, Dror and Shaw, 2011), as NumPy counts: from 1 on."""
    found: list[int] = []
    for block in range(1, -(-count // 4) + 1):
        word, key = [block, 0, 0, 0], [seed, stream]
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * word[0], 0xCA5A826395121157 * word[2]
            word = [
                (second >> 64) ^ word[1] ^ key[0],
                second & MASK,
                (first >> 64) ^ word[3] ^ key[1],
                first & MASK,
            ]
            key = [(key[0] + 0x9E3779B97F4A7C15) & MASK, (key[1] + 0xBB67AE8584CAA73B) & MASK]
        found += word
    return found[:count]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_the_order_is_that_of_philox(seed: int) -> None:
    keys = philox(seed, 0, 50)
    assert random_order(50, seed).tolist() == sorted(range(50), key=keys.__getitem__)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_subset_is_that_of_philox(seed: int) -> None:
    keys, labels = philox(seed, 1, 31), [row % 3 for row in range(30)]
    assert choose_rows(30, 8, seed).tolist() == sorted(sorted(range(30), key=keys.__getitem__)[:8])
    ranked = sorted(range(30), key=lambda row: (labels[row], keys[row]))
    wanted = [ranked[(step * 30 + keys[30] % 30) // 8] for step in range(8)]
    assert choose_rows(30, 8, seed, torch.tensor(labels)).tolist() == sorted(wanted)


def test_every_order_is_as_likely_as_any_other() -> None:
    seeds = 2400
    counts = Counter(tuple(random_order(4, seed).tolist()) for seed in range(seeds))
    expected = seeds / 24
    assert len(counts) == 24
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < chi2.ppf(0.999, 23)


@pytest.mark.parametrize("stratified", [False, True])
def test_every_row_is_as_likely_as_any_other(stratified: bool) -> None:
    """Rare labels, too: 13 of 40 rows, of labels that 1, 12 and 27 rows have."""
    labels = torch.tensor([1] * 12 + [0] + [2] * 27)
    seeds, count = 2000, torch.zeros(40)
    for seed in range(seeds):
        count[choose_rows(40, 13, seed, labels if stratified else None)] += 1
    low, high = (int(binom.ppf(level, seeds, 13 / 40)) for level in (1e-5, 1 - 1e-5))
    assert low <= int(count.min())
    assert int(count.max()) <= high


@pytest.mark.parametrize("seed", range(5))
def test_every_label_has_its_share(seed: int) -> None:
    """As in a sorted file of 700, 240 and 60 rows; its head would hold one label only."""
    labels = torch.tensor([0] * 700 + [1] * 240 + [2] * 60)
    data = Samples(torch.arange(1000.0).unsqueeze(1), labels)
    for count in (1, 7, 50, 333, 999):
        found = Subset.of(data, "digits@all", count, seed=seed, stratify=True)
        shares = torch.bincount(found.data.targets, minlength=3) - count * torch.tensor([0.7, 0.24, 0.06])
        assert bool((shares.abs() < 1).all())
        assert len(found.rows.unique()) == count
        assert torch.equal(found.data.inputs, data.inputs[found.rows])
        assert torch.equal(found.rows, found.rows.sort().values)


def test_labels_are_all_that_a_choice_looks_at() -> None:
    labels = torch.arange(20) % 2
    rows = [
        Subset.of(Samples(inputs, labels), "x", 6, seed=3, stratify=True).rows
        for inputs in (torch.zeros(20, 3), torch.arange(60.0).reshape(20, 3))
    ]
    assert torch.equal(*rows)
    plain = Subset.of(Samples(torch.zeros(20, 3), labels), "x", 6, seed=3, stratify=False)
    numbers = Subset.of(Samples(torch.zeros(20, 3), labels.double()), "x", 6, seed=3, stratify=True)
    assert torch.equal(plain.rows, numbers.rows)
    assert not numbers.stratified


def test_halves_share_nothing_but_the_numbers_of_labels() -> None:
    """Of a sorted file, whose own halves would have one label each."""
    data = Samples(torch.arange(101.0).unsqueeze(1), torch.tensor([0] * 51 + [1] * 49 + [2]))
    one, rest = halves(data, seed=0)
    assert torch.bincount(one.targets, minlength=3).tolist() == [25, 24, 0]
    assert torch.bincount(rest.targets, minlength=3).tolist() == [25, 24, 0]
    assert len(torch.cat([one.inputs, rest.inputs]).unique()) == 98
    assert not torch.equal(one.inputs, halves(data, seed=1)[0].inputs)
    numbers = halves(Samples(data.inputs, data.inputs[:, 0]), seed=0)
    assert [len(part) for part in numbers] == [50, 50]


def test_the_description_of_a_subset() -> None:
    data = Samples(torch.zeros(1797, 2), torch.arange(1797) % 10)
    words = {
        (None, True): "all 1,797 rows of digits@all",
        (1797, True): "all 1,797 rows of digits@all",
        (5000, False): "all 1,797 rows of digits@all",
        (500, True): "a random 500 of the 1,797 rows of digits@all, stratified by label, seed 4",
        (500, False): "a random 500 of the 1,797 rows of digits@all, seed 4",
    }
    for (count, stratify), said in words.items():
        found = Subset.of(data, "digits@all", count, seed=4, stratify=stratify)
        assert found.words == said
        assert found.as_json() == {
            "source": "digits@all",
            "count": len(found.data),
            "total": 1797,
            "stratified": "stratified" in said,
            "seed": None if said.startswith("all") else 4,
            "words": said,
        }


def test_refusals() -> None:
    data = Samples(torch.zeros(5, 2), torch.zeros(5))
    with pytest.raises(ArgumentError, match="`samples` must be a whole number, at least 1; got 0"):
        Subset.of(data, "five", 0, seed=0, stratify=True)
    with pytest.raises(ArgumentError, match=r"`seed` must be a whole .* less than 2\^63; got -1"):
        Subset.of(data, "five", None, seed=-1, stratify=True)
    with pytest.raises(ArgumentError, match="`samples` must lie between 1 and 5; got 6"):
        choose_rows(5, 6, seed=0)
