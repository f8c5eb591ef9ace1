"""Merged certificates: beside the certificate of all samples, and what must not be merged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from certus import Certificate, certify
from certus.costs import LabelCost, WeightedL2
from certus.data import Samples, Shard, Subset
from certus.errors import ArgumentError, UnsupportedError
from certus.kernel.evidence import Evidence
from certus.losses import SquaredError
from tests.certificates.problems import network, samples

RHOS = (0.0, 0.02, 0.1, 0.5)
ASK: dict[str, Any] = {"rho": RHOS, "gamma_rounds": 0, "local_radii": 1, "attack_steps": 2, "progress": False}
INPUTS, LABELS = samples(3, 21)
CUTS = (0, 4, 13, 21)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "classes": (LABELS, {"epsilon": (0.1,)}),
    "clipped": (LABELS, {"clip": 1.5, "class_weights": (1.0, 2.0, 0.5)}),
    "labels": (LABELS, {"label_cost": LabelCost(0.05, 3)}),
    "regression": (INPUTS[:, 0], {"criterion": SquaredError()}),
}


def certified(targets: Any, options: dict[str, Any]) -> tuple[Certificate, list[Certificate]]:
    model = network("tanh", 1, classes=1 if "criterion" in options else 3)
    parts = [
        certify(model, (INPUTS[start:end], targets[start:end]), **ASK | options)
        for start, end in itertools.pairwise(CUTS)
    ]
    return certify(model, (INPUTS, targets), **ASK | options), parts


@pytest.mark.parametrize(("targets", "options"), CASES.values(), ids=CASES.keys())
def test_merged_parts_are_the_whole(targets: Any, options: dict[str, Any]) -> None:
    """Proven sides; attained ones are those of the whole, up to attacks that some parts did not need."""
    whole, parts = certified(targets, options)
    merged = Certificate.merge(parts)
    assert merged.evidence is Evidence.PROVEN
    assert merged.lower_evidence is Evidence.ATTAINED
    assert merged.samples == len(INPUTS)
    for rho in RHOS:
        both = merged.bracket(rho), whole.bracket(rho)
        # A sample in smaller company has bounds that differ in the last digits.
        assert both[0].loss_high == pytest.approx(both[1].loss_high, rel=1e-7)
        assert both[0].loss_low <= both[0].loss_high
        assert both[0].loss_low >= both[1].loss_low * (1 - 0.02) - 1e-9
        if both[0].error_high is not None:
            assert both[0].error_high == pytest.approx(both[1].error_high, rel=1e-7)
            assert both[0].error_low is not None
            assert both[0].error_low <= both[0].error_high
    if "label_cost" not in options and merged.classes is not None:
        assert merged.recall(1, 0.1).low == pytest.approx(whole.recall(1, 0.1).low, rel=1e-7)
    for one, other in zip(merged.accuracies(), whole.accuracies(), strict=True):
        assert one == other


def test_the_sum_is_that_of_the_parts_own_values() -> None:
    """To 10⁻¹², beside sums over the values of all samples."""
    _, parts = certified(LABELS, {})
    merged = Certificate.merge(parts)
    for gamma, mean in merged.statement.means.items():
        values = torch.cat(
            [level.bound for part in parts for level in part.dual_values if level.gamma == gamma]
        )
        assert len(values) == len(INPUTS)
        assert float(values.mean()) <= mean <= float(values.mean()) * (1 + 5e-12)


def test_files_are_stated_until_they_are_verified_and_then_proven(tmp_path: Path) -> None:
    _, parts = certified(LABELS, {})
    paths = [tmp_path / f"part-{number}" / "certificate.json" for number in range(3)]
    for part, path in zip(parts, paths, strict=True):
        path.parent.mkdir()
        part.save(path, include_data=True)
    loaded = [Certificate.load(path) for path in paths]
    stated = Certificate.merge(loaded)
    assert stated.evidence is Evidence.STATED
    assert stated.lower_evidence is Evidence.STATED
    fresh = Certificate.merge(parts)
    assert stated.bound(0.1) == pytest.approx(fresh.bound(0.1), rel=1e-12)
    mixed = Certificate.merge([loaded[0], *parts[1:]])
    assert mixed.evidence is Evidence.STATED


def test_a_merged_certificate_is_checked_by_the_kernel(tmp_path: Path) -> None:
    """Fresh parts, merged and written, hold without any search."""
    _, parts = certified(LABELS, {"confidence": 0.9})
    merged = Certificate.merge(parts)
    path = tmp_path / "certificate.json"
    merged.save(path, include_data=True)
    again = Certificate.load(path)
    assert again.evidence is Evidence.STATED
    verified = again.verify()
    assert verified.evidence is Evidence.PROVEN
    assert verified.bound(0.1) == pytest.approx(merged.bound(0.1), rel=1e-9)


def test_a_population_is_bounded_over_all_rows() -> None:
    whole, parts = certified(LABELS, {"confidence": 0.9, "inequality": "hoeffding"})
    merged = Certificate.merge(parts).bracket(0.1)
    alone, single = whole.bracket(0.1), parts[0].bracket(0.1)
    for bracket in (merged, alone, single):
        assert bracket.population_loss is not None
        assert bracket.population_error is not None
    assert alone.population_loss is not None
    assert merged.population_loss is not None
    assert single.population_loss is not None
    assert alone.population_loss * (1 - 1e-7) <= merged.population_loss < single.population_loss * 1.5
    assert merged.population_error == pytest.approx(alone.population_error, rel=1e-7)
    assert merged.population_loss_low == 0


def test_what_must_not_be_merged() -> None:
    model, (inputs, labels) = network("tanh", 1), samples(3, 12)
    first = certify(model, (inputs[:6], labels[:6]), **ASK)

    def other(rows: slice = slice(6, 12), net: Any = model, **options: Any) -> Certificate:
        return certify(net, (inputs[rows], labels[rows]), **ASK | options)

    for part, words in (
        (other(net=network("tanh", 2)), "one model, cost and domain"),
        (other(cost=WeightedL2(torch.tensor([1.0, 3.0]))), "one model, cost and domain"),
        (other(rho=0.3), "another rho"),
        (other(clip=1.0), "another clip"),
        (other(slice(5, 12)), "no row in common: 1 of part 2"),
        (other(gammas=(7.7,)), "none in common"),
        (other(confidence=0.9), "all have a confidence, or none"),
    ):
        with pytest.raises(ArgumentError, match=words):
            Certificate.merge([first, part])
    with pytest.raises(ArgumentError, match="at least one certificate"):
        Certificate.merge([])
    weighted = certify(model, Samples(inputs[6:], labels[6:], torch.arange(1.0, 7.0)), **ASK)
    with pytest.raises(UnsupportedError, match="samples with weights"):
        Certificate.merge([first, weighted])


def as_shard(part: Certificate, text: str) -> Certificate:
    settings = {"shard": text, "samples": None, "seed": 0, "split": "test", "data": None}
    digests = {"problem": "a", "weights": "b", "source": "c"}
    return replace(
        part, about={"settings": settings, "digests": digests, "rows": {"source": "x@test", "count": 1}}
    )


def test_a_missing_shard_is_named() -> None:
    _, parts = certified(LABELS, {})
    shards = [as_shard(part, f"{number}/3") for number, part in enumerate(parts, 1)]
    merged = Certificate.merge(shards[::-1])
    assert merged.about["settings"]["shard"] == "1-3/3"
    assert merged.proven_error_cost is not None
    assert merged.proven_error_cost.tolist() == Certificate.merge(parts).proven_error_cost.tolist()  # type: ignore[union-attr]
    with pytest.raises(ArgumentError, match="2/3 is missing"):
        Certificate.merge([shards[0], shards[2]])
    with pytest.raises(ArgumentError, match="1/3 is given twice"):
        Certificate.merge([shards[0], shards[0], shards[2]])


@pytest.mark.parametrize("total", [1, 3, 7])
def test_shards_divide_the_rows(total: int) -> None:
    data = Samples(torch.arange(20.0)[:, None], torch.arange(20))
    blocks = [
        Subset.of(data, "x", None, seed=4, stratify=False, shard=f"{number}/{total}")
        for number in range(1, total + 1)
    ]
    together = Subset.of(data, "x", None, seed=4, stratify=False, shard=f"1-{total}/{total}")
    assert torch.equal(torch.cat([block.rows for block in blocks]), together.rows)
    assert together.rows.sort().values.tolist() == list(range(20))
    assert max(len(block.data) for block in blocks) - min(len(block.data) for block in blocks) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "2-1/3", "1/3/5", ""])
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(ArgumentError, match="the number of a shard and of all"):
        Shard.parse(text)


def test_a_part_is_not_merged_with_itself() -> None:
    """Nor where a row occurs twice in it, as in tables: nothing new is known of the population."""
    inputs, labels = INPUTS.clone(), LABELS.clone()
    inputs[1], labels[1] = inputs[0], labels[0]
    part = certify(network("tanh", 1), (inputs, labels), confidence=0.9, **ASK)
    with pytest.raises(ArgumentError, match="have no row in common"):
        Certificate.merge([part, part])
