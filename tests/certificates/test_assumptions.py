"""Certificates that rest on code or numbers of the user's say so by name: object, JSON and picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import certus
from certus import Box, SquaredL2, certify
from certus.bounds import RULES, rule
from certus.certificates.certificate import Certificate
from certus.certificates.files import as_json
from certus.costs import Bregman, Cost, Masked
from certus.display.figures import smoothness_figure
from certus.domains import Domain
from certus.errors import ClaimError, ContradictionError
from certus.kernel.passes import Shape
from certus.kernel.pointwise import Pointwise, scalar
from tests.certificates.problems import EVERYWHERE, L2, network, samples

DATA = samples(0, 8)
QUICK: dict[str, Any] = {"local_radii": 1, "gamma_rounds": 0, "attack_steps": 2}


class Mine(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(inputs)


def mine() -> nn.Module:
    model = network("tanh", 0)
    assert isinstance(model, nn.Sequential)
    return nn.Sequential(model[0], Mine(), model[2])


@pytest.fixture(autouse=True)
def my_rule() -> Iterator[None]:
    rule(Mine)(lambda module, shape: Pointwise(scalar("tanh"), shape))
    yield
    del RULES[Mine]


class Tripled(SquaredL2):
    growth = strong_convexity = 6.0

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 3 * super().value(moved, origin)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 3 * super().gradient(moved, origin)


class Euclid:
    euclidean_floor = 1.0

    def __call__(self, vectors: Tensor) -> Tensor:
        lengths: Tensor = (vectors.flatten(1) ** 2).sum(1).sqrt()
        return lengths

    @property
    def dual(self) -> Euclid:
        return self


class Room(Box):
    pass


def squares(z: Tensor) -> Tensor:
    return (z**2).sum(1)


FREE = torch.tensor([True, False])
GEOMETRIES: dict[str, tuple[Cost, Domain, tuple[str, ...]]] = {
    "ours": (L2, EVERYWHERE, ()),
    "cost": (Tripled(), EVERYWHERE, ("growth and strong convexity of Tripled",)),
    "masked": (Masked(Tripled(), FREE), EVERYWHERE, ("growth and strong convexity of Tripled",)),
    "bregman": (Bregman(squares, 2.0), EVERYWHERE, ("the modulus 2.0 of Bregman",)),
    "norm": (
        Bregman(squares, 2.0, Euclid()),
        EVERYWHERE,
        ("the modulus 2.0 of Bregman", "the norm Euclid of Bregman"),
    ),
    "domain": (L2, Room(-2.0, 2.0), ()),
}


@pytest.mark.parametrize(("cost", "domain", "names"), GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_costs_norms_and_domains(cost: Cost, domain: Domain, names: tuple[str, ...]) -> None:
    found = certify(network("elu", 0), DATA, rho=0.1, cost=cost, domain=domain, **QUICK)
    assert found.assumptions == names
    assert found.evidence == ("assumed" if names else "proven")
    bracket = found.bracket(0.1)
    assert bracket.loss_low <= bracket.loss_high


def test_no_upper_bound_rests_on_a_users_own_domain() -> None:
    """It is proven for all of space, though attacks stay inside."""
    own, boxed, unbounded = (
        certify(network("elu", 0), DATA, rho=4.0, domain=domain, **QUICK)
        for domain in (Room(-1.0, 1.0), Box(-1.0, 1.0), EVERYWHERE)
    )
    assert own.bound(4.0) == pytest.approx(unbounded.bound(4.0), rel=1e-9)
    assert own.bound(4.0) > boxed.bound(4.0)
    assert own.lower(4.0) == pytest.approx(boxed.lower(4.0), rel=1e-9)
    assert own.lower(4.0) < unbounded.lower(4.0)


def test_a_cost_of_ones_own_is_bounded_like_ours() -> None:
    """3c within 3ρ is c within ρ: an oracle for the way that the bounds of other people's costs take."""
    model = network("elu", 3)
    own, theirs = (
        certify(model, DATA, rho=rho, cost=cost, **QUICK) for rho, cost in ((0.1, L2), (0.3, Tripled()))
    )
    assert theirs.bound(0.3) == pytest.approx(own.bound(0.1), rel=0.02)
    assert theirs.lower(0.3) == pytest.approx(own.lower(0.1), rel=0.02)
    assert theirs.bound(0.3) >= own.lower(0.1)


def test_rules_and_claims_in_object_and_file(tmp_path: Path) -> None:
    model = mine()
    bound = certus.input_smoothness(model)
    names = ("the rule of Mine (layer 1)", "the bounds given as `smoothness`")
    for smoothness, expected in ((None, names[:1]), (bound, names)):
        found = certify(model, DATA, rho=0.1, smoothness=smoothness, **QUICK)
        assert (found.evidence, found.assumptions) == ("assumed", expected)
        content = as_json(found)
        assert content["evidence"] == "assumed"
        assert content["assumptions"] == list(expected)
        assert content["validity"].startswith("Assumed: the rule of Mine (layer 1)")
        path = tmp_path / "certificate.json"
        path.write_text(json.dumps(content))
        assert Certificate.load(path).assumptions == expected


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they were when they were saved."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *rest, **more: figures.append(figure))
    return figures


def words_of(figure: Figure) -> str:
    """All that a reader of the picture can read."""
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    titles = [axes.get_title() for axes in figure.axes]
    ticks = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    return " | ".join([figure.get_suptitle(), *legends, *titles, *ticks])


def test_pictures_say_it(drawn: list[Figure], tmp_path: Path) -> None:
    for model, assumed in ((network("tanh", 0), False), (mine(), True)):
        found = certify(model, DATA, rho=0.1, confidence=0.9, **QUICK)
        found.plot(tmp_path / "bracket.png", title="a title")
        smoothness = smoothness_figure(certus.input_smoothness(model))
        bracket, bound = words_of(drawn[-1]), words_of(smoothness)
        for words in (bracket, bound):
            assert ("Assumed: the rule of Mine (layer 1)." in words) == assumed
            assert ("proven" in words) == (not assumed)
        assert ("(assumed)" in bracket) == ("(assumed)" in bound) == assumed
        assert (", assumed" in bracket) == assumed  # the population's sides too
        assert "a title" in bracket


def slight(module: nn.Module, shape: Shape) -> Pointwise:
    """Derivatives a hundred times too small."""
    tanh = scalar("tanh")
    small = replace(tanh, slope=lambda z: tanh.slope(z) / 100, curvature=lambda z: tanh.curvature(z) / 100)
    return Pointwise(small, shape)


class Grown(SquaredL2):
    growth = 2000.0


def test_refuted_claims_are_refused_by_certify() -> None:
    with pytest.raises(ClaimError, match="Grown is refuted: it claims growth 2000"):
        certify(network("elu", 0), DATA, rho=0.1, cost=Grown(), **QUICK)
    rule(Mine)(slight)
    with pytest.raises(ClaimError, match=r"The rule of Mine \(layer 1\) is refuted: it claims σ' = 0\.01"):
        certify(mine(), DATA, rho=0.1, **QUICK)


def test_claims_that_trials_miss_raise_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both lines of defence hold by themselves."""
    monkeypatch.setattr("certus._validation.check_claims", lambda *arguments: None)
    monkeypatch.setattr("certus.bounds.analysis.check_claims_everywhere", lambda *arguments: None)
    with pytest.raises(ContradictionError, match="It assumes growth and strong convexity of Grown"):
        certify(network("elu", 0), DATA, rho=0.1, cost=Grown(), **QUICK)
    monkeypatch.setattr("certus.bounds.layer_rules.check_activation", lambda *arguments: None)
    rule(Mine)(slight)
    with pytest.raises(ContradictionError, match=r"It assumes the rule of Mine \(layer 1\)"):
        certify(mine(), DATA, rho=0.1, **QUICK)
