"""The monitor against closed forms and exact transport: positions, verdicts, bounds, labels and columns."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest
import torch
from torch import Tensor, nn

import certus
from certus.certificates import Certificate
from certus.certificates.couplings import propose_coupling
from certus.costs import Masked, SquaredL2, SquaredSup
from certus.errors import ArgumentError
from certus.kernel.costs import Lp
from certus.kernel.transport import TransportBounds
from certus.monitoring import Monitor
from certus.monitoring.reading import Rows

RHO = 0.25


def rows(seed: int, count: int = 200, move: float = 0.0, width: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator).double() + move


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def linear() -> nn.Module:
    """Class 1 where the first input is positive."""
    model = nn.Linear(2, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        model.bias.zero_()
    return model


def layer(width: int, outputs: int) -> nn.Module:
    model, generator = nn.Linear(width, outputs).double(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        model.weight.copy_(torch.randn(outputs, width, generator=generator))
        model.bias.zero_()
    return model


def labels(inputs: Tensor) -> Tensor:
    return (inputs[:, 0] > 0).long()


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    inputs = rows(0)
    return certus.certify(linear(), (inputs, labels(inputs)), rho=[0.01, RHO], progress=False)


def test_a_translation_is_met_from_both_sides(certificate: Certificate) -> None:
    """W_c(A, A + v) = ‖v‖²: covered within ρ, and outside beyond it."""
    monitor, inputs = Monitor(certificate), rows(0)
    for size, position in ((0.3, "covered"), (0.49, "covered"), (0.51, "outside"), (3.0, "outside")):
        result = monitor.check(inputs + vector(size, 0.0))
        assert result.position == position
        exact = float(((rows(0) + vector(size, 0.0) - rows(0)) ** 2).sum(1).mean())
        assert result.distance.low <= exact <= result.distance.high
        assert result.distance.low == pytest.approx(size**2, rel=1e-6)
        assert result.distance.high == pytest.approx(size**2, rel=1e-6)
        assert result.distance.root_high == pytest.approx(size, rel=1e-6)
        assert (result.verdict == "fine") == (position == "covered")
        first, second = result.by_column
        assert first.column == "column 0"
        assert first.share == pytest.approx(size**2 / RHO)
        assert second.cost == 0
    assert monitor.check(inputs + 3).verdict == "alarm"


def test_the_bound_is_that_of_the_certificate_at_the_distance(certificate: Certificate) -> None:
    monitor, moved = Monitor(certificate), rows(0) + vector(0.3, 0.0)
    result = monitor.check(moved)
    assert result.bound == certificate.error_bound(result.distance.high)
    assert result.realised is None
    # The labels of the rows that they are coupled with: the error is below the bound.
    labelled = monitor.check(moved, labels(rows(0)))
    assert labelled.realised is not None
    error = float((labels(moved) != labels(rows(0))).double().mean())
    assert labelled.realised.error == pytest.approx(error)
    assert labelled.realised.relabelled == 0
    assert error <= labelled.bound
    assert labelled.bound == pytest.approx(result.bound, rel=1e-9)


def test_other_labels_raise_the_bound_by_their_share(certificate: Certificate) -> None:
    """All labels of a fifth of the rows change: at most a fifth more errors, and as many are met."""
    own = labels(rows(0))
    changed = torch.cat([1 - own[:40], own[40:]])
    result = Monitor(certificate).check(rows(0), changed)
    assert result.realised is not None
    assert result.realised.error is not None
    assert result.realised.error == pytest.approx(0.2)
    assert result.realised.relabelled is not None
    clean = certificate.error_bound(result.distance.high)
    assert clean is not None
    assert result.bound == pytest.approx(clean + result.realised.relabelled)
    assert result.realised.error <= result.bound


def test_labels_that_come_late_are_judged_as_far_as_they_are_there(certificate: Certificate) -> None:
    """The distance is that of the inputs alone, and errors are those of the labelled rows."""
    moved, monitor = rows(0) + vector(0.3, 0.0), Monitor(certificate)
    own = labels(rows(0)).double()
    some = torch.where(torch.arange(200) < 50, own, math.nan)
    result, without = monitor.check(moved, some), monitor.check(moved)
    assert (result.distance, result.labelled) == (without.distance, False)
    assert result.realised is not None
    errors = (labels(moved) != own)[:50].double()
    assert result.realised.rows == 50
    assert result.realised.error == pytest.approx(float(errors.mean()))
    assert result.realised.relabelled is None
    assert "Observed on 50 labelled of 200 rows" in " ".join(str(result).split())
    assert monitor.check(moved, own * math.nan).realised is None


def test_clusters_are_thinned_to_the_share_that_is_certified(certificate: Certificate) -> None:
    """Of clusters of ten equal rows one row each is certified. Dealt out whole, new rows would lie closer to
    each other than to the certified ones."""
    alarms = []
    for seed in range(30):
        new = rows(seed + 1, 20)
        names = np.arange(200), 1000 + np.arange(200) // 10
        copies = Rows(new.repeat_interleave(10, 0), None, 200)
        alarms.append(Monitor(certificate, seed=seed).judge(copies, clusters=names, share=0.1).alarm)
    assert sum(alarms) <= 0.05 * 30 + 4 * (30 * 0.05 * 0.95) ** 0.5


def test_labels_with_a_price_are_part_of_the_distance() -> None:
    inputs = rows(0)
    own, price = labels(inputs), 2.0
    certificate = certus.certify(
        *(linear(), (inputs, own)), rho=RHO, label_cost=certus.costs.LabelCost(price, 2), progress=False
    )
    changed = torch.cat([1 - own[:20], own[20:]])
    shares = abs(float(changed.double().mean()) - float(own.double().mean()))
    result = Monitor(certificate).check(inputs, changed)
    assert result.distance.low == pytest.approx(price * shares)
    assert result.distance.high >= result.distance.low
    assert Monitor(certificate).check(inputs).distance.high == 0
    assert result.bound == certificate.error_bound(result.distance.high)


def test_two_samples_of_one_law_raise_no_alarm_and_are_not_covered(certificate: Certificate) -> None:
    """In many dimensions the position alone would always cry."""
    wide = rows(0, 150, width=12)
    model = layer(12, 2)
    own = certus.certify(model, (wide, labels(wide)), rho=0.01, progress=False)
    verdicts = [Monitor(own).check(rows(seed, 150, width=12)) for seed in range(1, 7)]
    assert [result.position for result in verdicts] == ["outside"] * 6
    assert sum(result.alarm for result in verdicts) <= 1
    assert Monitor(own).check(rows(9, 150, 0.5, width=12)).alarm
    one = verdicts[0]
    assert one.statistic == pytest.approx(1.0, abs=0.5)
    assert one.line > 1
    assert one.chance == pytest.approx(sum(each.chance for each in one.by_column))


def test_chosen_columns_alone_count(certificate: Certificate) -> None:
    """With one column both sides are the distance by sorting, whatever the other does."""
    moved = rows(5, 120) + vector(0.1, 40.0)
    result = Monitor(certificate, columns=[0]).check(moved)
    exact = ot.emd2_1d(rows(0)[:, 0].numpy(), moved[:, 0].numpy())
    assert result.distance.low == pytest.approx(exact, rel=1e-6)
    assert result.distance.high == pytest.approx(exact, rel=1e-6)
    assert [each.column for each in result.by_column] == ["column 0"]
    assert result.position == "covered"
    assert Monitor(certificate).check(moved).position == "outside"


def test_frozen_columns_do_not_count() -> None:
    inputs = rows(0)
    cost = Masked(SquaredL2(), torch.tensor([True, False]))
    certificate = certus.certify(linear(), (inputs, labels(inputs)), rho=RHO, cost=cost, progress=False)
    monitor = Monitor(certificate)
    result = monitor.check(rows(0) + vector(0.1, 9.0))
    assert result.distance.high == pytest.approx(0.01, rel=1e-6)
    assert [each.column for each in result.by_column] == ["column 0"]
    with pytest.raises(ArgumentError, match="`columns` must name a column that the cost"):
        Monitor(certificate, columns=[1])


def test_rows_outside_the_domain_are_outside() -> None:
    inputs = rows(0).clamp(-2, 2)
    certificate = certus.certify(
        *(linear(), (inputs, labels(inputs))), rho=RHO, domain=certus.Box(-2.0, 2.0), progress=False
    )
    moved = inputs.clone()
    moved[3, 0] = 2.5
    result = Monitor(certificate).check(moved)
    assert (result.position, result.outside_domain) == ("outside", 1)
    assert result.bound == math.inf
    assert Monitor(certificate).check(inputs).position == "covered"


def test_a_regression_is_bounded_by_its_loss() -> None:
    inputs = rows(0)
    model = layer(2, 1)
    targets = model(inputs).detach().flatten() + 0.1
    certificate = certus.certify(model, (inputs, targets), rho=RHO, progress=False)
    moved = inputs + vector(0.2, 0.0)
    result = Monitor(certificate).check(moved, targets)
    assert result.regression
    assert result.bound == certificate.bound(result.distance.high)
    assert result.realised is not None
    assert result.realised.error is None
    assert 0 < result.realised.loss <= result.bound


def test_it_prints_and_writes_what_it_found(certificate: Certificate) -> None:
    result = Monitor(certificate).check(rows(1) + 2, name="june")
    text = " ".join(str(result).split())
    for words in ("Alarm", "june", "column 0", "by chance", "vacuous"):
        assert words in text
    content = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert (content["verdict"], content["distance"]["low"]) == ("alarm", result.distance.low)
    assert content["by_column"][0]["column"] == result.by_column[0].column
    assert result.plot().axes


def test_a_stored_certificate_brings_its_rows_or_needs_them(certificate: Certificate, tmp_path: Path) -> None:
    fresh = Monitor(certificate).check(rows(3) + 0.2)
    certificate.save(tmp_path / "with.json", include_data=True)
    certificate.save(tmp_path / "without.json")
    stored = Monitor(tmp_path / "with.json").check(rows(3) + 0.2)
    assert stored.distance == fresh.distance
    assert stored.bound == pytest.approx(fresh.bound, rel=1e-9)
    assert (stored.p_value, stored.evidence) == (fresh.p_value, "stated")
    with pytest.raises(ArgumentError, match="`reference` must be the certified rows: they are neither"):
        Monitor(tmp_path / "without.json")
    given = Monitor(tmp_path / "without.json", (rows(0), labels(rows(0))))
    assert given.check(rows(3) + 0.2).distance == fresh.distance
    with pytest.raises(ArgumentError, match="`reference` must be the certified rows: their digest differs"):
        Monitor(tmp_path / "without.json", (rows(1), labels(rows(1))))
    checked = Monitor(Certificate.load(tmp_path / "with.json").verify())
    assert checked.check(rows(3) + 0.2).evidence == "proven"


def test_what_cannot_be_compared_is_refused(certificate: Certificate) -> None:
    monitor = Monitor(certificate)
    wrong: list[tuple[Any, Any, str]] = [
        (rows(0, width=3), None, r"`new` must have rows of shape \(2,\)"),
        (rows(0)[:0], None, "`new` must hold at least one row"),
        (rows(0) * math.nan, None, "`new` must hold finite numbers"),
        (rows(0), torch.full((200,), 2), "`targets` must be labels from 0 to 1"),
        (rows(0), torch.zeros(3), "`targets` must be one for each of 200 rows"),
        ("csv:new.csv", None, "`new` must be rows as the model takes them"),
    ]
    for new, targets, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            monitor.check(new, targets)
    with pytest.raises(ArgumentError, match="`level` must lie between 0 and 1"):
        Monitor(certificate, level=0)
    with pytest.raises(ArgumentError, match="`columns` must be among 0, 1; got 'income'"):
        Monitor(certificate, columns=["income"])
    with pytest.raises(ArgumentError, match="`certificate` must have a rho above 0"):
        Monitor(replace(certificate, rhos=(0.0,)))


@pytest.mark.parametrize("kind", ["l2", "sup"])
@pytest.mark.parametrize(("n", "m"), [(1700, 1600), (1600, 40), (60, 90)])
def test_proposed_couplings_are_couplings(kind: str, n: int, m: int) -> None:
    """In pieces too, with labels of other shares: the kernel accepts them, and they cost at least POT's."""
    first, second = rows(0, n, width=3), rows(1, m, 0.3, width=3)
    own = torch.arange(n) % 3, torch.arange(m) % 2
    cost = Lp(shape=(3,), p=2.0 if kind == "l2" else math.inf)
    for targets in (None, own):
        if kind == "sup" and targets is not None:
            continue  # slow, and the cuts are the same
        coupling = propose_coupling(first, second, cost, targets=targets)
        bounds = TransportBounds.of(first, second, cost, targets=targets, coupling=coupling)
        if targets is not None:
            shares = [np.bincount(part.numpy(), minlength=3) / len(part) for part in own]
            assert bounds.relabelled == pytest.approx(abs(shares[0] - shares[1]).sum() / 2, abs=1e-9)
        elif kind == "l2":
            table = ot.dist(first.numpy(), second.numpy())
            exact = float(ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), table))
            assert bounds.low <= exact <= bounds.high
            assert bounds.high <= 1.8 * exact


def test_costs_that_are_no_sum_have_bounds_too() -> None:
    inputs = rows(0, 60)
    cost = SquaredSup()
    certificate = certus.certify(linear(), (inputs, labels(inputs)), rho=RHO, cost=cost, progress=False)
    moved = inputs + vector(0.3, 0.3)
    result = Monitor(certificate).check(moved)
    assert result.distance.low <= 0.09 <= result.distance.high
    assert result.distance.high == pytest.approx(0.09, rel=1e-6)
