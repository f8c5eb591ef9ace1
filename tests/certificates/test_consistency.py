"""low > high is an alarm: forced through every way into a certificate, and raised with both numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import certus
from certus import SquaredL2, certify
from certus.bounds import SmoothnessBound
from certus.certificates.certificate import Certificate
from certus.certificates.consistency import check_observed
from certus.certificates.dual_values import DualValues
from certus.certificates.files import as_json
from certus.certificates.local_bounds import LocalBounds
from certus.certificates.lower_bounds import attack_balls
from certus.data import Samples
from certus.errors import ContradictionError
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.storage.write import add_checksum
from tests.certificates.problems import network, samples


@pytest.fixture(scope="module")
def honest() -> Certificate:
    return certify(
        network("elu", 0),
        samples(0, 30),
        rho=(0.01, 0.1),
        confidence=0.9,
        local_radii=1,
        gamma_rounds=0,
        attack_steps=2,
    )


def test_a_claim_that_is_too_small() -> None:
    claim = SmoothnessBound({"mine": 1e-6}, 1e-3, 1e-3, None, None, [], None, SquaredL2())
    words = (
        r"at sample \d+ and gamma = .*ascent.*at most .*rests on the \w+ rule\. It assumes the bounds given"
    )
    with pytest.raises(ContradictionError, match=words):
        certify(network("elu", 2), samples(2, 15), rho=0.1, smoothness=claim)


def test_a_slope_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of our own is found out too: bounds around the samples a third of the truth."""

    def wrong(*arguments: Any) -> Neighborhoods:
        found = neighborhoods(*arguments)
        profile = replace(found.profile, right=found.profile.right / 3, left=found.profile.left / 3)
        return replace(found, profile=profile)

    monkeypatch.setattr("certus.certificates.local_bounds.neighborhoods", wrong)
    with pytest.raises(ContradictionError, match=r"at sample \d+ .* the radial rule\. Nothing was assumed"):
        certify(network("elu", 0), samples(0, 10), rho=0.1, local_radii=0, gamma_rounds=0, attack_steps=0)


def test_an_attack_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an ascent stays put, the attack in balls is what meets a wrong bound."""

    def stronger(*arguments: Any) -> Any:
        found = attack_balls(*arguments)
        return found._replace(losses=found.losses + torch.arange(len(found.losses)).double())

    monkeypatch.setattr("certus.certificates.engine.attack_balls", stronger)
    with pytest.raises(ContradictionError, match=r"at sample [1-9].* found by an attack in balls"):
        certify(
            network("relu", 0, size=3.0),
            samples(0, 10),
            rho=0.1,
            local_radii=0,
            gamma_rounds=0,
            attack_steps=2,
        )


@pytest.mark.parametrize(
    "change",
    [
        {"bound": torch.full((6,), 1e-14, dtype=torch.float64)},
        {"bound": torch.full((6,), math.nan, dtype=torch.float64)},
        {"loss": torch.full((6,), 9.0, dtype=torch.float64)},
        {"transport_cost": torch.full((6,), -9.0, dtype=torch.float64)},
    ],
    ids=["bound", "nan", "loss", "cost"],
)
def test_a_level_that_is_wrong(change: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    solve = LocalBounds.dual_values

    def wrong(self: LocalBounds, gamma: float, moves: torch.Tensor) -> tuple[DualValues, Samples]:
        level, points = solve(self, gamma, moves)
        if gamma != 2:
            return level, points
        if "bound" in change:
            return replace(level, bounds=replace(level.bounds, **change)), points  # type: ignore[arg-type]
        return replace(level, **change), points  # type: ignore[arg-type]

    ask: dict[str, Any] = {
        "rho": 0.1,
        "gammas": [4.0, 2.0],
        "local_radii": 0,
        "gamma_rounds": 0,
        "attack_steps": 0,
    }
    certify(network("elu", 1), samples(1, 6), **ask)
    monkeypatch.setattr(LocalBounds, "dual_values", wrong)
    with pytest.raises(ContradictionError, match=r"at sample 0 and gamma = "):
        certify(network("elu", 1), samples(1, 6), **ask)


def test_an_error_below_its_floor(honest: Certificate) -> None:
    assert honest.proven_error_cost is not None
    assert honest.attained_error_cost is not None
    right = int((honest.proven_error_cost > 0).nonzero()[0])
    floor = honest.proven_error_cost.clone()
    floor[right] = honest.attained_error_cost[right] * (1 + 1e-15) + 1e-300
    words = rf"at sample {right} an error was found at the cost .*, but none costs less than"
    with pytest.raises(ContradictionError, match=words):
        replace(honest, statement=replace(honest.statement, error_costs=floor))


def test_no_tolerance(honest: Certificate) -> None:
    """Both sides are rounded outwards, so that one last place too much is an alarm."""
    line = min(honest.aggregates, key=lambda line: abs(line.rho_hat - 0.05))
    low = line.loss - 1e-12 * (1 + abs(line.loss))
    bound = honest.statement.means[line.gamma]
    ceiling = (line.gamma * line.rho_hat + bound) * (1 + 1e-12)
    shrunk = {**honest.statement.means, line.gamma: bound - (ceiling - low) - 4e-16 * abs(ceiling)}
    with pytest.raises(ContradictionError, match=rf"at rho = {line.rho_hat:.6g} the worst loss is at least"):
        replace(honest, statement=replace(honest.statement, means=shrunk))


def test_files_that_contradict_themselves(honest: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    content = json.loads(json.dumps(as_json(honest)))
    path.write_text(json.dumps(content))
    assert Certificate.load(path).bracket(0.1) == honest.bracket(0.1)
    lines = [line | {"bound": line["bound"] / 9} for line in content["aggregates"]]
    raised = [min(9.0, 1 + cost) for cost in content["proven_error_cost"]]
    people = content["population"]
    grid = [entry | {"mean": 1e-9, "loss": people["clip"]} for entry in people["grid"]]
    forged: list[tuple[dict[str, Any], str]] = [
        ({"aggregates": lines}, r"certificate.json: .*at rho = 0 the worst loss is at least .* and at most"),
        ({"proven_error_cost": raised}, r"certificate.json: .*at sample \d+ an error was found"),
        (
            {"clean_loss": [content["clean_loss"][1] + 1, content["clean_loss"][1]]},
            "the loss of the sample itself",
        ),
        (
            {"attacks": [{"rho": 0.1, "transport_cost": 0.1, "loss": 7.0}]},
            r"at least 6\.9+.* .an attack in balls. and at most",
        ),
        (
            {"population": people | {"grid": grid}},
            r"at rho = 0.01 the population's worst loss is at least .* with confidence 0.9: the confidence "
            "failed, or the samples were not drawn independently",
        ),
    ]
    for part, words in forged:
        path.write_text(json.dumps(add_checksum(content | part)))
        with pytest.raises(ContradictionError, match=words):
            Certificate.load(path)


def test_a_population_that_contradicts_itself_has_no_bracket(honest: Certificate) -> None:
    people = honest.statement.population
    assert people is not None
    forged = replace(
        honest, statement=replace(honest.statement, population=replace(people, error_margin=-1.0))
    )
    with pytest.raises(ContradictionError, match="the population's worst error rate is at least"):
        forged.bracket(0.1)
    with pytest.raises(ContradictionError, match="the population's worst error rate is at least"):
        as_json(forged)


def test_other_data_that_do_worse_than_any_may() -> None:
    """The samples moved by hand, each by ‖δ‖² = ρ: within ρ, whatever a coupling may still save."""
    model, (inputs, targets) = network("elu", 0), samples(0, 20)
    found = certify(model, (inputs, targets), rho=0.04, local_radii=0, gamma_rounds=0, attack_steps=0)
    moved = inputs + torch.tensor([0.2, 0.0], dtype=torch.float64)
    assert found.source is not None
    loss, error = found.source.evaluate(Samples(moved, targets))
    with torch.no_grad():
        outputs = model(moved)
    assert loss == pytest.approx(float(nn.functional.cross_entropy(outputs, targets)), abs=1e-9)
    assert error == pytest.approx(float((outputs.argmax(1) != targets).double().mean()))
    check_observed(found, 0.04, loss, error, "theirs")
    high = found.bracket(0.04)
    with pytest.raises(
        ContradictionError, match=r"theirs, within rho = 0\.04, has a loss of .*; the worst has at most"
    ):
        check_observed(found, 0.04, math.nextafter(high.loss_high, math.inf), error, "theirs")
    assert high.error_high is not None
    with pytest.raises(ContradictionError, match=r"theirs, within rho = 0\.04, has an error rate of"):
        check_observed(found, 0.04, loss, math.nextafter(high.error_high, math.inf), "theirs")


def test_it_is_an_error_of_this_library() -> None:
    assert issubclass(ContradictionError, certus.CertusError)
    assert certus.errors.ContradictionError is ContradictionError
