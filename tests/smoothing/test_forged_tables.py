"""Certificates by smoothing with every number of file and table changed in turn, all digests made to fit.

The kernel refuses a forgery, or its numbers follow all the same: a plain computation in this file, without
the kernel, says so.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import Tensor

from certus import Evidence
from certus.errors import CertusError, VerificationError
from certus.kernel.smoothing import GammaDesign, SmoothedStatement, dominated
from certus.smoothing import SmoothedCertificate
from certus.smoothing.certificate import Quantity, rules_of, table_tensors
from certus.smoothing.design import prove_means
from certus.storage.tensors import digest, load_tensors, save_tensors
from certus.storage.write import add_checksum

SAMPLES, DRAWS, VOTES, SIGMA, CLIP = 14, 3, 5, 0.5, 2.0
NAMES = ("vote", "ideal_vote", "loss")
SCORES = np.linspace(-7, 7, 281)
Floats = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def certificate() -> SmoothedCertificate:
    """Of a threshold at 0 and a steep loss, from coarse grids: few numbers, and loose bounds."""
    rng, places = np.random.default_rng(0), np.linspace(-2.5, 2.5, SAMPLES)[:, None]
    margins = (places + SIGMA * rng.normal(size=(SAMPLES, DRAWS))) * np.sign(places)
    rules, grid, designs = rules_of(VOTES, None), np.linspace(-6, 6, 49), {}
    for name in NAMES:
        rule = rules[name]
        grids = (grid, grid if rule.votes else np.zeros(0), grid[::4])
        asked = ((4.0, 0.7, 0.0), (1.0, 0.3, 0.5))
        start = np.linspace(0, 1, DRAWS + 1)
        coarse = [GammaDesign(gamma, start, share, slope, grids) for gamma, share, slope in asked]
        raised = [dominated(design, rule, SIGMA) for design in coarse]
        designs[name] = [replace(one, coefficients=one.coefficients + 1e-6) for one in raised]
    ceilings = {name: CLIP if name == "loss" else 1.0 for name in NAMES}
    claim = SmoothedStatement(
        *(SIGMA, 0.9, SAMPLES, DRAWS, 3, None), {name: (rules[name], ceilings[name]) for name in NAMES}, {}
    )
    errors, losses = torch.from_numpy((margins < 0).sum(1)), torch.from_numpy(1 / (1 + np.exp(4 * margins)))
    proof, tables = prove_means(
        claim, {name: losses if name == "loss" else errors for name in NAMES}, designs
    )
    quantities = tuple(Quantity(name, ceilings[name], dict(proof.means[name]), 0.01) for name in NAMES)
    return SmoothedCertificate(
        *((0.01, 0.1), SIGMA, DRAWS, VOTES, None, 0.9, SAMPLES, 8, 3, CLIP, quantities, {}),
        table=digest(table_tensors(tables)),
        proof=proof,
        tables=tables,
    )


@pytest.fixture
def file(certificate: SmoothedCertificate, tmp_path: Path) -> Path:
    certificate.save(tmp_path / "smoothing.json")
    return tmp_path / "smoothing.json"


def written(certificate: SmoothedCertificate, file: Path) -> SmoothedCertificate:
    """The certificate as read from a file that calls itself proven."""
    file.write_text(json.dumps(add_checksum(certificate.as_json() | {"evidence": "proven"})))
    return SmoothedCertificate.load(file)


def worst_failure(name: str, kappa: float, certificate: SmoothedCertificate) -> Floats:
    """F_κ at ``SCORES``, over these scores: at most the supremum."""
    many, level = (1, None) if name == "loss" else (certificate.votes, certificate.abstain)
    fails = (SCORES >= 0) * 1.0
    if name != "ideal_vote":
        lost = [
            2 * k >= many or (level is not None and 2 * binom.cdf(k, many, 0.5) > level + 1e-12)
            for k in range(many + 1)
        ]
        fails = np.asarray(binom.sf(lost.index(True) - 1, many, norm.cdf(SCORES)))
    return np.asarray((fails - kappa * (SCORES - SCORES[:, None]) ** 2).max(1))


def values_of(coefficients: Floats, errors: Tensor) -> Floats:
    """c_K, or its mean over all outcomes of m trials."""
    if errors.dim() == 1:
        return np.asarray(coefficients[errors.long().numpy()])
    chances, values = errors.double().numpy(), np.zeros(len(errors))
    for outcome in itertools.product((0, 1), repeat=errors.shape[1]):
        values += np.where(outcome, chances, 1 - chances).prod(1) * coefficients[sum(outcome)]
    return values


def largest_wealth(numbers: Floats, ceiling: float, level: float, claim: float) -> float:
    """Of a bettor against the claim, one sample after the other."""
    wealth = best = 1.0
    total, squares, spread = 0.5, 0.25, 0.25
    for count, number in enumerate(numbers, 2):
        gain = 1 - number / ceiling
        bet = min(math.sqrt(2 * math.log(1 / level) / (len(numbers) * spread)), 0.9)
        wealth *= 1 + bet * (gain - 1 + claim / ceiling)
        best, total = max(best, wealth), total + gain
        squares += (gain - total / count) ** 2
        spread = squares / count
    return best


def follows(certificate: SmoothedCertificate, tensors: dict[str, Tensor]) -> bool:
    """Whether the stated means follow from the table, up to rounding."""
    keys = np.random.Philox(key=np.array([certificate.seed, 0], dtype=np.uint64))
    order = torch.from_numpy(keys.random_raw(certificate.samples).argsort(kind="stable"))
    failure = 0.8 * (1 - certificate.confidence) / len(certificate.quantities)
    for quantity in certificate.quantities:
        name, rows = quantity.name, tensors[f"{quantity.name}.designs"].numpy()
        errors = tensors["losses" if name == "loss" else "errors"][order]
        raised, needed = list[Floats](), list[float]()
        if rows[:, 1].sum() > 1 + 1e-9 or not (errors >= 0).all():
            return False
        for row, proposed in zip(rows, tensors[f"{name}.coefficients"].numpy(), strict=True):
            gamma, share, slope, claim = row[:4]
            rising = np.maximum.accumulate(np.maximum(proposed, 0))
            chances = binom.pmf(np.arange(len(rising)), len(rising) - 1, norm.cdf(SCORES)[:, None])
            worst = worst_failure(name, gamma * certificate.sigma**2, certificate)
            if certificate.label_price is not None:
                worst = np.maximum(worst, 1 - gamma * certificate.label_price)
            raised.append(rising + max(0.0, float((worst - chances @ rising).max())))
            left = raised[-1] - slope * raised[0]
            low, ceiling = left.min(), left.max() - left.min()
            numbers = values_of(raised[-1], errors) - slope * values_of(raised[0], errors) - low
            if claim < ceiling - 1e-9:
                level = share * failure
                if not largest_wealth(numbers, ceiling, level, claim) >= (1 - 1e-6) / level:
                    return False
            needed.append(low + min(claim, ceiling) + (slope * needed[0] if needed else 0.0))
            if quantity.means.get(quantity.ceiling * gamma, -1.0) < quantity.ceiling * needed[-1] - 1e-8:
                return False
    return True


def changed_certificates(certificate: SmoothedCertificate) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each number that is not computed from others: larger, smaller, and by a little."""
    for name in ("sigma", "confidence", "clip"):
        for factor in (0.5, 0.95, 1 - 1e-7, 1 + 1e-7, 1.05, 2):
            if name != "confidence" or factor * certificate.confidence < 1:
                yield name, {name: factor * getattr(certificate, name)}
    yield (
        "clip",
        {
            "clip": 1.0,
            "quantities": tuple(
                replace(one, ceiling=1.0) if one.name == "loss" else one for one in certificate.quantities
            ),
        },
    )
    for name, value in itertools.product(("draws", "votes", "samples", "seed"), (-1, 1, 3, 10**15)):
        yield name, {name: getattr(certificate, name) + value}
    for price in (0.01, 1.0, 100.0):
        yield "label_price", {"label_price": price}
    for abstain in (0.01, 0.5, 1.0):
        yield "abstain", {"abstain": abstain}
    for index, quantity in enumerate(certificate.quantities):
        for gamma, factor in itertools.product(quantity.means, (0.5, 1 - 1e-6, 1 + 1e-6, 2)):
            larger = {key * factor if key == gamma else key: mean for key, mean in quantity.means.items()}
            better = {key: mean * factor if key == gamma else mean for key, mean in quantity.means.items()}
            for name, means in (("gamma", larger), ("mean", better)):
                others = list(certificate.quantities)
                others[index] = replace(quantity, means=means, start=0.0)
                yield name, {"quantities": tuple(others)}


def test_every_number_of_the_file(certificate: SmoothedCertificate, file: Path) -> None:
    tensors, _ = load_tensors(file.with_suffix(".safetensors"))
    assert follows(certificate, tensors)
    refused, accepted, lines = Counter[str](), Counter[str](), list[str]()
    for name, change in changed_certificates(certificate):
        try:
            checked = written(replace(certificate, **change, proof=None, source=None), file).verify()
        except CertusError as reason:
            refused[name] += 1
            lines += str(reason).splitlines()
            continue
        accepted[name] += 1
        assert follows(checked, tensors), (name, change)
        assert checked.lower_evidence is Evidence.STATED
    # Less confidence, more noise, dearer labels and other votes follow from the same table.
    assert set(accepted) <= {"sigma", "confidence", "votes", "abstain", "label_price", "seed"}
    assert min(accepted["sigma"], accepted["confidence"], accepted["label_price"]) > 0
    assert {"sigma", "confidence", "clip", "draws", "samples", "gamma", "mean", "abstain"} <= set(refused)
    assert len(lines) == refused.total()  # one line each
    assert min(map(len, lines)) > 20


@pytest.mark.parametrize("most", [6, pytest.param(None, marks=pytest.mark.soak, id="all")])
def test_every_number_of_the_table(certificate: SmoothedCertificate, file: Path, most: int | None) -> None:
    """Of each tensor, or as many as are drawn from it by a fixed seed."""
    place, refused, accepted, lines = file.with_suffix(".safetensors"), Counter[str](), 0, list[str]()
    original, _ = load_tensors(place)
    for name, tensor in original.items():
        places = random.Random(0).sample(range(tensor.numel()), tensor.numel())
        for index in places[:most]:
            change = (-1, 1)[index % 2] if name == "errors" else (0.9, 1.1)[index % 2]
            forged = tensor.clone()
            number = forged.view(-1)[index]
            forged.view(-1)[index] = number + change if name == "errors" else number * change + 0.01
            tensors = original | {name: forged}
            save_tensors(place, tensors)
            try:
                checked = written(replace(certificate, table=digest(tensors), proof=None), file).verify()
            except CertusError as reason:
                refused[name] += 1
                lines += str(reason).splitlines()
                continue
            accepted += 1
            assert follows(checked, tensors), (name, index, change)
    kinds = {"errors", "losses", "designs", "coefficients"}
    # Few edges matter: most others only make the cells wider or narrower.
    assert {name.partition(".")[2] or name for name in refused} - {"edges"} == kinds
    assert most is not None or any(name.endswith(".edges") for name in refused)
    assert len(lines) == refused.total()
    assert accepted > 0


@pytest.mark.parametrize("factor", [0.9, 1 - 1e-4])
def test_the_plain_computation_sees_false_means(certificate: SmoothedCertificate, factor: float) -> None:
    assert certificate.tables is not None
    for index, quantity in enumerate(certificate.quantities):
        for gamma, mean in quantity.means.items():
            others = list(certificate.quantities)
            others[index] = replace(quantity, means=quantity.means | {gamma: mean * factor}, start=0.0)
            false = replace(certificate, quantities=tuple(others))
            assert not follows(false, table_tensors(certificate.tables))


HOSTILE: dict[str, dict[str, Any]] = {
    "NaN in losses": {"losses": lambda one: one * math.nan},
    "a loss above 1": {"losses": lambda one: one + 1},
    "losses of integers": {"losses": lambda one: one.long()},
    "losses of complex numbers": {"losses": lambda one: one.to(torch.complex64)},
    "counts of one bit": {"errors": lambda one: one.bool()},
    "losses of float16": {"losses": lambda one: one.half()},
    "negative counts": {"errors": lambda one: one - DRAWS - 1},
    "counts above m": {"errors": lambda one: one + DRAWS + 1},
    "counts of complex numbers": {"errors": lambda one: one.to(torch.complex64)},
    "counts of unsigned numbers": {"errors": lambda one: one.to(torch.uint64)},
    "fractional counts": {"errors": lambda one: one.double()},
    "a count for each draw": {"errors": lambda one: one[:, None].repeat(1, DRAWS)},
    "no samples": {"errors": lambda one: one[:0], "losses": lambda one: one[:0]},
    "designs of float32": {"vote.designs": lambda one: one.float()},
    "a design too few": {"vote.designs": lambda one: one[:1]},
    "no designs": dict.fromkeys(("vote.designs", "vote.coefficients", "vote.edges"), lambda one: one[:0]),
    "designs in one row": {"vote.designs": lambda one: one.flatten()},
    "designs of few columns": {"vote.designs": lambda one: one[:, :5]},
    "NaN in designs": {"loss.designs": lambda one: one * math.nan},
    "infinite designs": {"loss.designs": lambda one: one / 0},
    "negative designs": {"loss.designs": lambda one: -one},
    "huge designs": {"loss.designs": lambda one: one * 1e300},
    "empty grids": {"loss.designs": lambda one: one * torch.tensor([1.0] * 4 + [0.0] * 6 + [1.0])},
    "NaN in coefficients": {"vote.coefficients": lambda one: one * math.nan},
    "large coefficients": {"vote.coefficients": lambda one: one * 1e6},
    "a coefficient too few": {"vote.coefficients": lambda one: one[:, 1:]},
    "text for coefficients": {"vote.coefficients": lambda one: one.to(torch.uint8)},
    "edges that fall": {"vote.edges": lambda one: one.flip(0)},
    "an edge too few": {"vote.edges": lambda one: one[1:]},
    "an edge too many": {"vote.edges": lambda one: torch.cat([one, one[-1:] + 1])},
    "no edges": {"vote.edges": lambda one: one[:0]},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_table_is_refused_in_a_sentence(
    certificate: SmoothedCertificate, file: Path, what: str
) -> None:
    place = file.with_suffix(".safetensors")
    tensors, _ = load_tensors(place)
    tensors |= {name: change(tensors[name]) for name, change in HOSTILE[what].items()}
    save_tensors(place, tensors)
    forged = written(replace(certificate, table=digest(tensors), proof=None), file)
    with pytest.raises(CertusError) as caught:
        forged.verify()
    assert len(str(caught.value)) > 20
    assert "\n" not in str(caught.value)


def test_a_huge_number_of_samples_takes_no_memory(certificate: SmoothedCertificate) -> None:
    with pytest.raises(VerificationError, match="draws of each of 1000000000000000 samples"):
        replace(certificate, samples=10**15).verify()
