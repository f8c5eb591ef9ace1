"""What `mnist` and `mnist-large` say of made-up numbers: each claim holds for some, and fails for others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from certus.runs.settings import Settings
from studies import mnist_inf, mnist_large
from studies.mnist_claims import method_claims
from studies.mnist_networks import MNIST_METHODS, mnist_network, mnist_training, recipe
from studies.reproduction import Comparison, Extent
from studies.workshop import Workshop
from tests.studies.made_up import sweep_of

Found = dict[str, Any]
ACCURACY, CONCAVE, STABLE, DIGITS, EIGHT, CERTIFICATE = 0, 1, 8, 9, 10, 11


def surface(rho: float, loss: float) -> Found:
    """At two γ_adv, of which the second is that of training; the certificate is 0.1 + 0.5 ρ."""
    rows = [{"gamma": gamma, "rho_test": rho / gamma, "loss": loss, "error": 0.1} for gamma in (1.0, 0.5)]
    return {"rows": rows, "phi": 0.1, "gamma": 0.5, "rho_hat": 0.2}


@pytest.fixture
def found() -> Found:
    """As the paper has it."""
    share = {where: {"concave": 98, "unresolved": 0} for where in ("image", "halfway")}
    made: Found = {"concavity-0": share | {"count": 100}, "surface-wrm": surface(0.001, 0.1)}
    readings = dict(zip(MNIST_METHODS, (3, 3, 2, 0, 3), strict=True))
    made["digits"] = {
        "methods": {
            name: {"distance": [1.0] * 10, "gamma": [1.0] * 10, "read_as": [digit] * 10}
            for name, digit in readings.items()
        }
    }
    for name in MNIST_METHODS:
        made[f"network-{name}-0"] = {"test_error": 0.009, "epochs": 7}
        if name != "wrm":
            made[f"surface-{name}"] = surface(0.1, 0.5)
        errors = {"erm": (0.01, 0.5, 0.9), "wrm": (0.01, 0.1, 0.2)}.get(name, (0.01, 0.3, 0.5))
        for attack in ("pgm", "fgm", "ifgm"):
            made[f"{attack}-{name}-0"] = sweep_of(name, 0, *errors)
    return made


def claim(found: Found, place: int, **changed: Any) -> Comparison:
    return method_claims(found | {name.replace("_", "-"): one for name, one in changed.items()})[place]


def test_the_paper_agrees_with_itself(found: Found) -> None:
    claims = method_claims(found)
    assert [one.agrees for one in claims] == [True] * DIGITS + [None, True, True]
    assert all(bool(one.reason) != bool(one.agrees) for one in claims)


def test_accuracy_is_judged_of_the_worst_method(found: Found) -> None:
    worse = claim(found, ACCURACY, network_wrm_0={"test_error": 0.011, "epochs": 7})
    assert (worse.agrees, worse.reason) == (False, "here robustness costs accuracy.")
    assert "WRM 98.90%" in worse.measured
    both = claim(found, ACCURACY, network_erm_1={"test_error": 0.012, "epochs": 7})
    assert "ERM 98.95%" in both.measured
    assert both.reason.startswith("ERM itself has 99.10%, 98.80%: it was trained for 7 epochs at a constant")


@pytest.mark.parametrize(("concave", "unresolved", "agrees"), [(96, 0, True), (95, 5, False)])
def test_what_could_not_be_told_is_not_called_concave(
    concave: int, unresolved: int, agrees: bool, found: Found
) -> None:
    share = {where: {"concave": concave, "unresolved": unresolved} for where in ("image", "halfway")}
    one = claim(found, CONCAVE, concavity_0=share | {"count": 100})
    assert one.agrees is agrees
    assert f"At {concave}.0% of 100" in one.measured
    assert f"{2 * unresolved} points could not be told" in one.measured


def test_the_worst_of_several_seeds_decides(found: Found) -> None:
    worse = {where: {"concave": 95, "unresolved": 0} for where in ("image", "halfway")}
    one = claim(found, CONCAVE, concavity_1=worse | {"count": 100})
    assert one.agrees is False
    assert "At 98.0%, 95.0% of 100 random training images (2 seeds)" in one.measured


@pytest.mark.parametrize(
    ("erm", "fgm", "agrees", "words"),
    [
        (
            0.1,
            0.1,
            True,
            "ERM's is up to 100 times WRM's (orders: 100 or more). WRM's is the smallest at every",
        ),
        (0.099, 0.1, False, "up to 99 times"),
        (0.1, 0.0009, False, "the smallest at not every"),
    ],
)
def test_stability(erm: float, fgm: float, agrees: bool, words: str, found: Found) -> None:
    one = claim(found, STABLE, surface_erm=surface(erm, 0.5), surface_fgm=surface(fgm, 0.5))
    assert one.agrees is agrees
    assert words in one.measured
    assert bool(one.reason) != agrees


def test_another_reading_of_the_eight_is_told(found: Found) -> None:
    found["digits"]["methods"]["wrm"]["read_as"] = [2] * 10
    one = claim(found, EIGHT)
    assert one.paper == "(b) An 8 is read as 0 by PGM, 2 by IFGM, 3 by ERM, FGM, WRM."
    assert one.measured == "0 by PGM, 2 by IFGM, WRM, 3 by ERM, FGM."
    assert one.agrees is None


def test_the_certificate_fails_at_one_level(found: Found) -> None:
    one = claim(found, CERTIFICATE, surface_wrm=surface(0.001, 0.1008))
    assert one.agrees is False  # 0.1 + 0.5 · 0.001 is less, 0.1 + 0.5 · 0.002 is more
    assert "at 1 of 2 levels" in one.measured
    assert "the mean of φ is 0.100 there, and 0.100 on the test data" in one.reason


@pytest.mark.parametrize(
    ("changed", "agrees", "reason"),
    [
        ({"wrm": (0.01, 0.30, 0.50)}, None, "cannot tell"),
        ({"wrm": (0.01, 0.10, 0.70)}, False, "not known; WRM is behind at 0.2 C."),
        ({"fgm": (0.01, 0.55, 0.50)}, False, "not known; ERM is as good."),
    ],
)
def test_attacks(
    changed: dict[str, tuple[float, ...]], agrees: bool | None, reason: str, found: Found
) -> None:
    """One strength decides against the paper; a lead that 100 images cannot tell decides nothing."""
    sweeps = {f"pgm-{name}-0": sweep_of(name, 0, *errors) for name, errors in changed.items()}
    l2, sup = method_claims(found | sweeps)[2:4]
    assert (l2.agrees, sup.agrees) == (agrees, agrees)
    assert reason in l2.reason


def test_strengths_at_which_wrm_errs_least_are_named(found: Found) -> None:
    """Ties are no lead."""
    shares = (0.0, 0.025, 0.05, 0.1, 0.2)
    errors = dict.fromkeys(MNIST_METHODS, (0.01, 0.2, 0.2, 0.3, 0.5)) | {"erm": (0.01, 0.4, 0.4, 0.6, 0.9)}
    errors["wrm"] = (0.01, 0.1, 0.2, 0.3, 0.2)
    sweeps = {f"pgm-{name}-0": sweep_of(name, 0, *ones, shares=shares) for name, ones in errors.items()}
    one = method_claims(found | sweeps)[2]
    assert one.agrees is True
    assert one.measured == (
        "Beyond 0.05 C, at 0.1, 0.2 C: all beat ERM at 0.1, 0.2; WRM errs least at 0.2, by more than the "
        "images' sampling error at 0.2. At smaller strengths, which do not count, it errs least at 0.025."
    )


@pytest.mark.parametrize(
    ("large", "half", "agrees"),
    [
        ((0.2, 0.5), 0.0, True),  # 0.4 at the small budget
        ((0.2, 0.7), 0.0, False),
        ((0.2, 0.6), 0.0, None),
        ((0.2, 0.5), 0.1, None),
    ],
)
def test_distinctions_are_those_at_their_farthest(
    large: tuple[float, float], half: float, agrees: bool | None
) -> None:
    measured = {}
    for family, (best, worst) in (("small", (0.2, 0.6)), ("large", large)):
        errors = dict.fromkeys(("fgm", "ifgm", "pgm"), worst) | {"wrm": best, "erm": 1.0}
        for name, error in errors.items():
            measured[f"{family}:pgm-{name}-0"] = sweep_of(name, 0, 0.01, 0.1, error, half=half)
    one = mnist_large.distinction(measured, "pgm", "inf")
    assert one.agrees is agrees
    assert f"At most {100 * (large[1] - large[0]):.1f} points (WRM least, at 0.2 C)" in one.measured
    assert "and 40.0 points (WRM least, at 0.2 C) at the small budget" in one.measured
    assert bool(one.reason) != bool(agrees)


def test_networks_are_trained_as_the_pages_say() -> None:
    """The paper's network, batches of 256, nothing clipped; a recipe may say otherwise."""
    asked: list[Settings] = []

    class Asked:
        def network(self, settings: Settings) -> None:
            asked.append(settings)

    how = recipe(Extent.PAPER, "erm", 3, label_smoothing=0.1)
    mnist_network(cast(Workshop, Asked()), how)
    (one,) = asked
    told = mnist_training(Extent.PAPER)
    assert {name: getattr(one, name) for name in told} == told | {"label_smoothing": 0.1}
    assert (one.model, one.batch_size, one.clip, one.epochs) == ("mnist-cnn", 256, False, 3)
    assert (told["ascent"], told["tolerance"], told["learning_rate"]) == ("adaptive", 0.005, 0.001)
    assert mnist_training(Extent.QUICK)["batch_size"] == 64


def test_the_papers_ascent_beside_ours() -> None:
    measured: Found = {}
    for kind, clean in (("wrm", 0.01), ("by_paper", 0.02)):
        measured[f"small:network-{kind}-0"] = {"test_error": clean, "rho_hat": 0.25}
        for attack in ("pgm", "fgm", "ifgm"):
            measured[f"small:{attack}-{kind}-0"] = sweep_of(kind, 0, clean, 10 * clean, 20 * clean)
    words = mnist_inf.by_paper_text(measured)
    assert "ours / the paper's: test error 1.00% / 2.00%; √ρ̂ 0.5000 / 0.5000, each" in words
    assert "| PGM, L2 | 1.0 / 2.0 | 10.0 / 20.0 | 20.0 / 40.0 |" in words
    assert mnist_inf.by_paper_text({}) == ""
