"""Verdicts on MNIST under attack on made-up numbers: each holds for some, and fails for others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from certus.attacks.evaluation import wilson
from studies.mnist import large_budget
from studies.mnist.networks import MNIST_METHODS
from studies.mnist.sup_norm import SUP_RULES, longer_text, sup_norm_verdicts
from studies.mnist.sweeps import (
    NORMS_SHOWN,
    attack_verdicts,
    curve_of,
    difference_at,
    difference_of_proportions,
    packed_outcomes,
    unpacked_outcomes,
)
from studies.study import Outcome, outcome_of
from tests.studies.made_up import sweep_of

ROOT = Path(__file__).parents[2]


def test_seeds_become_their_mean_and_range() -> None:
    curve = curve_of([sweep_of("erm", 0, 0.0, 0.2, 0.4), sweep_of("erm", 1, 0.1, 0.4, 0.5)], "2", False)
    assert curve is not None
    assert curve.values == pytest.approx([0.05, 0.3, 0.45])
    assert (curve.low, curve.high) == ([0.0, 0.2, 0.4], [0.1, 0.4, 0.5])


def test_outcomes_are_compared_image_by_image_where_they_are_stored() -> None:
    """Of 100 images both methods fail on the same 40, and one on 8 more: 8 ± 5.6 points for pairs (half an
    image added to each cell: 8/102 ± 1.96·√(9/102 − (8/102)²)/√102), and ± 13 for independent images."""
    hard = torch.arange(100) < 40
    more = torch.arange(100) < 48
    sweeps = [sweep_of(name, 0, 0.0, rate, rate) for name, rate in (("fgm", 0.48), ("wrm", 0.4))]
    alone = difference_at([sweeps[0]], [sweeps[1]], "2", 0.1)
    for sweep, wrong in zip(sweeps, (more, hard), strict=True):
        for row in sweep["rows"]:
            row["wrong"] = packed_outcomes(wrong)
    paired = difference_at([sweeps[0]], [sweeps[1]], "2", 0.1)
    assert alone.value == pytest.approx(0.08)
    assert alone.low < -0.04
    assert (paired.value, paired.low, paired.high) == pytest.approx((0.08, 0.0228, 0.1340), abs=1e-4)
    assert unpacked_outcomes(packed_outcomes(more), 100).equal(more)


def test_leads_within_the_sampling_error() -> None:
    """Of 100 images: 20 errors cannot be told from 30, 10 can from 50."""
    errors = dict.fromkeys(MNIST_METHODS, (0.0, 0.3, 0.5)) | {"wrm": (0.0, 0.2, 0.1)}
    measured = {f"pgm-{name}-0": sweep_of(name, 0, *values) for name, values in errors.items()}
    for one in attack_verdicts(measured, {"pgm": "fig:mnist"}):
        first, last = (one.ours[f"gap at {share} C"].high for share in (0.1, 0.2))
        assert first is not None
        assert last is not None
        assert first > 0 > last


@pytest.mark.parametrize(
    ("image", "halfway", "agrees"), [(11, 0, True), (3, 11, None), (10, 10, False)], ids=str
)
def test_concavity_is_judged_at_the_images(image: int, halfway: int, agrees: bool | None) -> None:
    places = {"image": image, "halfway": halfway}
    share = {where: {"concave": 100 - count, "unresolved": 0} for where, count in places.items()}
    found = large_budget.concavity_verdict(share | {"count": 100})
    assert found.outcome is outcome_of(agrees)


# Clean, at 0.05 and 0.1 C (small attacks), and at 0.3 C (a large one).
WINS = {
    "wrm": (0.01, 0.1, 0.2, 0.8),
    "fgm": (0.02, 0.2, 0.3, 0.7),
    "ifgm": (0.02, 0.3, 0.4, 0.9),
    "pgm": (0.02, 0.2, 0.3, 0.8),
}
SATURATED = dict.fromkeys(WINS, (0.02, 0.2, 0.3, 0.96))
LENGTHS = {"samples": 500, "percentiles": [place / 100 for place in range(101)]}


def family_of_errors(
    name: str, errors: Mapping[str, tuple[float, ...]], half: float = 0.0, attack: str = "pgm"
) -> dict[str, Any]:
    """Made up: the error rates of four networks, clean and under three attacks."""
    found: dict[str, Any] = {f"{name}:lengths-wrm-0": LENGTHS}
    for method, values in errors.items():
        sweep = sweep_of(method, 0, *values, half=half, shares=(0.0, 0.05, 0.1, 0.3))
        found[f"{name}:{attack}-{method}-0"] = sweep
        known = {"test_error": values[0], "test_images": 10000, "epsilon": 0.9}
        found[f"{name}:network-{method}-0"] = known
    return found


@pytest.mark.parametrize(
    ("changed", "half", "agrees"),
    [
        ({}, 0.0, [True, True, True]),
        ({"wrm": (0.03, 0.1, 0.2, 0.8)}, 0.0, [False, True, True]),
        ({"wrm": (0.019, 0.1, 0.2, 0.8)}, 0.0, [None, True, True]),  # 10 of 10,000 images tell nothing
        ({"wrm": (0.01, 0.21, 0.2, 0.8)}, 0.0, [True, False, True]),  # worse at one of two
        ({"wrm": (0.01, 0.1, 0.31, 0.8)}, 0.0, [True, False, True]),
        ({"wrm": (0.01, 0.2, 0.3, 0.8)}, 0.0, [True, None, True]),  # as good as the best at both
        ({"wrm": (0.01, 0.1, 0.2, 0.6)}, 0.0, [True, True, False]),
        (SATURATED, 0.0, [None, None, None]),
        ({}, 0.069, [True, True, True]),  # 0.1 is more than √2 · 0.069
        ({}, 0.072, [True, None, None]),
    ],
)
def test_each_claim_about_the_large_budget_can_fail(
    changed: dict[str, tuple[float, ...]], half: float, agrees: list[bool | None]
) -> None:
    claims = sup_norm_verdicts(family_of_errors("large", WINS | changed, half), {"large": "fig:x"})
    clean, small, large = (outcome_of(one) for one in agrees)
    assert [one.outcome for one in claims] == [clean, small, large, small, large, Outcome.NOT_COMPARABLE]
    assert len({one.name for one in claims}) == len(claims)


def test_a_clear_disagreement_refutes_every_claim() -> None:
    found = family_of_errors("large", WINS | {"wrm": (0.03, 0.3, 0.4, 0.6)})
    claims = sup_norm_verdicts(found, {"large": "fig:x"}, "Similar trends: ")
    assert [one.outcome for one in claims] == [Outcome.NO] * 5 + [Outcome.NOT_COMPARABLE]
    assert all(one.claim.startswith("Similar trends: ") for one in claims)


def test_gaps_of_a_longer_training_have_a_table() -> None:
    found = family_of_errors("small", WINS)
    assert longer_text(found, ["small"]) == ""
    shares = (0.0, 0.05, 0.1, 0.3)
    found["small:pgm-longer-0"] = sweep_of("wrm", 0, 0.01, 0.2, 0.3, 0.71, shares=shares)
    head, _, l2, sup = longer_text(found, ["small", "large"]).splitlines()
    assert [cell.strip() for cell in head.split("|")[2:-1]] == ["0.05 C", "0.1 C", "0.3 C"]
    gaps = ["0.0 [0.0, 0.0]", "0.0 [0.0, 0.0]", "1.0 [1.0, 1.0]"]
    assert [cell.strip() for cell in l2.split("|")[1:-1]] == ["PGM, L2", *gaps]
    assert [cell.strip() for cell in sup.split("|")[2:-1]] == gaps


def test_the_spread_of_seeds_is_that_of_mnist() -> None:
    measured = json.loads((ROOT / "results/mnist/measured.json").read_text())["measured"]
    curves = [
        curve_of([measured[f"pgm-wrm-{seed}"] for seed in range(3)], norm, False) for norm in NORMS_SHOWN
    ]
    spread = max(high - low for one in curves if one for low, high in zip(one.low, one.high, strict=True))
    assert f"differ by up to {100 * spread:.0f} points" in SUP_RULES


def test_one_attack_against_the_claim_is_enough() -> None:
    found = family_of_errors("large", WINS)
    found |= family_of_errors("large", WINS | {"wrm": (0.01, 0.1, 0.2, 0.6)}, attack="fgm")
    *_, large, _ = sup_norm_verdicts(found, {"large": "fig:x"})
    assert large.outcome is Outcome.NO
    assert [large.ours[f"{attack} at 0.3 C"].value for attack in ("PGM", "FGM")] == pytest.approx([10, -10])


@pytest.mark.parametrize(("extra", "agrees"), [(0.1, True), (0.0, None), (-0.2, False)])
def test_large_attacks_are_worst_in_the_sup_norm(extra: float, agrees: bool | None) -> None:
    found = family_of_errors("large", WINS)
    rows = found["large:pgm-wrm-0"]["rows"]
    for one in rows:
        if one["norm"] == "inf" and one["share"] == 0.3:
            one |= {name: one[name] + extra for name in ("error", "low", "high")}
    assert sup_norm_verdicts(found, {"large": "fig:x"})[-1].outcome is outcome_of(agrees)


def test_newcombes_interval() -> None:
    """His example of 1998, method 10: 56 of 70 and 48 of 80 differ by 0.0524 to 0.3339."""
    gap = difference_of_proportions(wilson(56, 70), wilson(48, 80))
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


@pytest.mark.parametrize(("name", "count"), [("small", 2), ("large", 5)])
def test_where_all_err_always_there_is_nothing_to_compare(name: str, count: int) -> None:
    errors = dict.fromkeys(WINS, (0.9, 0.96, 1.0, 1.0))
    claims = sup_norm_verdicts(family_of_errors(name, errors), {name: "fig:x"})[-count:]
    assert [one.outcome for one in claims] == [Outcome.NOT_COMPARABLE] * count
    assert [one.ours for one in claims] == [{}] * count


@pytest.mark.parametrize(
    ("strongest", "half", "agrees"),
    [
        (0.74, 0.0, True),
        (0.74, 0.01, None),  # 0.04 ± 0.014
        (0.76, 0.01, None),
        (0.76, 0.0, False),
        (0.66, 0.0, True),
        (0.64, 0.0, False),  # better is not a match
    ],
)
def test_wrm_matches_only_within_a_limit_on_both_sides(
    strongest: float, half: float, agrees: bool | None
) -> None:
    found = family_of_errors("small", WINS | {"wrm": (0.01, 0.2, 0.3, strongest)}, half)
    claims = sup_norm_verdicts(found, {"small": "fig:x"})
    assert [one.outcome for one in claims] == [outcome_of(agrees)] * 2
