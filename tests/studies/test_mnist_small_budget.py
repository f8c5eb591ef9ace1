"""Verdicts of `mnist` and `mnist-large` on made-up numbers: each holds for some, and fails for others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from certus.runs.settings import Settings
from studies.mnist import large_budget, sup_norm
from studies.mnist.networks import MNIST_METHODS, mnist_network, mnist_training, recipe
from studies.mnist.small_budget import method_verdicts
from studies.study import Outcome, Scale, Verdict, outcome_of
from studies.workspace import Workspace
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


def claim(found: Found, place: int, **changed: Any) -> Verdict:
    return method_verdicts(found | {name.replace("_", "-"): one for name, one in changed.items()})[place]


def value(verdict: Verdict, name: str) -> float | None:
    return verdict.ours[name].value


def test_the_paper_agrees_with_itself(found: Found) -> None:
    claims = method_verdicts(found)
    outcomes = [Outcome.YES] * DIGITS + [Outcome.NOT_COMPARABLE, Outcome.YES, Outcome.YES]
    assert [one.outcome for one in claims] == outcomes
    assert len({one.name for one in claims}) == len(claims)


def test_accuracy_is_judged_of_the_worst_method(found: Found) -> None:
    """One of five is a fifth of the methods; half a point is forgiven."""
    worse = claim(found, ACCURACY, network_wrm_0={"test_error": 0.016, "epochs": 7})
    assert worse.outcome is Outcome.PARTLY
    assert value(worse, "WRM") == pytest.approx(0.984)
    near = claim(found, ACCURACY, network_wrm_0={"test_error": 0.0149, "epochs": 7})
    assert near.outcome is Outcome.YES
    both = claim(found, ACCURACY, network_erm_1={"test_error": 0.012, "epochs": 7})
    assert value(both, "ERM") == pytest.approx(0.9895)


@pytest.mark.parametrize(
    ("concave", "unresolved", "agrees"), [(94, 0, "yes"), (92, 5, "partly"), (87, 8, "no")]
)
def test_undecided_points_do_not_count_as_concave(
    concave: int, unresolved: int, agrees: str, found: Found
) -> None:
    share = {where: {"concave": concave, "unresolved": unresolved} for where in ("image", "halfway")}
    one = claim(found, CONCAVE, concavity_0=share | {"count": 100})
    assert one.outcome == agrees
    assert value(one, "image, seed 0") == concave / 100
    assert value(one, "undecided points") == 2 * unresolved


def test_the_worst_of_several_seeds_decides(found: Found) -> None:
    worse = {where: {"concave": 85, "unresolved": 0} for where in ("image", "halfway")}
    one = claim(found, CONCAVE, concavity_1=worse | {"count": 100})
    assert one.outcome is Outcome.NO
    assert [value(one, f"image, seed {seed}") for seed in (0, 1)] == [0.98, 0.85]


@pytest.mark.parametrize(
    ("erm", "fgm", "agrees", "ratio", "smallest"),
    [(0.1, 0.1, True, 100, 2), (0.099, 0.1, False, 99, 2), (0.1, 0.0009, False, 100, 0)],
)
def test_stability(erm: float, fgm: float, agrees: bool, ratio: float, smallest: int, found: Found) -> None:
    one = claim(found, STABLE, surface_erm=surface(erm, 0.5), surface_fgm=surface(fgm, 0.5))
    assert one.outcome is outcome_of(agrees)
    assert value(one, "ERM's over WRM's, largest") == pytest.approx(ratio)
    assert value(one, "WRM's smallest at") == smallest


def test_another_reading_of_the_eight_is_not_comparable(found: Found) -> None:
    found["digits"]["methods"]["wrm"]["read_as"] = [2] * 10
    one = claim(found, EIGHT)
    assert one.outcome is Outcome.NOT_COMPARABLE
    assert one.paper == {"ERM": 3, "FGM": 3, "IFGM": 2, "PGM": 0, "WRM": 3}
    assert value(one, "WRM") == 2


def test_a_digit_without_an_error_has_no_length(found: Found) -> None:
    found["digits"]["methods"]["wrm"] |= {"distance": [4.0, *[1.0] * 9], "gamma": [0.0, *[1.0] * 9]}
    one = claim(found, DIGITS)
    assert (value(one, "mean L2 length, WRM"), value(one, "none found")) == (1.0, 1)


def test_the_certificate_fails_at_one_level(found: Found) -> None:
    one = claim(found, CERTIFICATE, surface_wrm=surface(0.001, 0.1008))
    assert one.outcome is Outcome.PARTLY  # 0.1 + 0.5 · 0.001 is less, 0.1 + 0.5 · 0.002 is more
    assert (value(one, "above at"), value(one, "values of ρ")) == (1, 2)
    assert value(one, "test data") == pytest.approx(0.0998)


@pytest.mark.parametrize(
    ("changed", "outcome", "counts"),
    [
        ({}, "yes", [14, 14, 14]),
        ({"wrm": (0.01, 0.10, 0.70)}, "partly", [14, 14, 11]),  # behind three at 0.2 C
        ({"fgm": (0.01, 0.55, 0.90)}, "yes", [14, 12, 12]),  # ERM is as good, which 100 images cannot tell
        ({"wrm": (0.01, 0.80, 0.95)}, "no", [14, 13, 6]),
    ],
)
def test_attacks(
    changed: dict[str, tuple[float, ...]], outcome: str, counts: list[int], found: Found
) -> None:
    """At each of two strengths four methods are compared with ERM, and WRM with three others."""
    sweeps = {f"pgm-{name}-0": sweep_of(name, 0, *errors) for name, errors in changed.items()}
    for one in method_verdicts(found | sweeps)[2:4]:
        assert [value(one, name) for name in ("pairs", "decided", "as claimed")] == counts
        assert one.outcome == outcome


def test_small_strengths_are_judged_too(found: Found) -> None:
    shares = (0.0, 0.025, 0.05, 0.1, 0.2)
    errors = dict.fromkeys(MNIST_METHODS, (0.01, 0.2, 0.2, 0.3, 0.5)) | {"erm": (0.01, 0.4, 0.4, 0.6, 0.9)}
    errors["wrm"] = (0.01, 0.8, 0.2, 0.3, 0.2)
    sweeps = {f"pgm-{name}-0": sweep_of(name, 0, *ones, shares=shares) for name, ones in errors.items()}
    one = method_verdicts(found | sweeps)[2]
    assert one.outcome is Outcome.PARTLY
    gaps = [value(one, f"gap at {share:g} C") for share in shares[1:]]
    assert gaps == pytest.approx([60.0, 0.0, 0.0, -30.0])
    assert [value(one, name) for name in ("pairs", "decided", "as claimed")] == [28, 22, 18]


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
    one = large_budget.distinction_verdict(measured, "pgm", "inf")
    assert one.outcome is outcome_of(agrees)
    assert value(one, "large budget, WRM least, at 0.2 C") == pytest.approx(100 * (large[1] - large[0]))
    assert value(one, "small budget, WRM least, at 0.2 C") == pytest.approx(40)


def test_networks_are_trained_as_the_pages_say() -> None:
    """The paper's network, batches of 256, nothing clipped; a recipe may say otherwise."""
    asked: list[Settings] = []

    class Asked:
        def network(self, settings: Settings) -> None:
            asked.append(settings)

    how = recipe(Scale.FULL, "erm", 3, label_smoothing=0.1)
    mnist_network(cast(Workspace, Asked()), how)
    (one,) = asked
    told = mnist_training(Scale.FULL)
    assert {name: getattr(one, name) for name in told} == told | {"label_smoothing": 0.1}
    assert (one.model, one.batch_size, one.clip, one.epochs) == ("mnist-cnn", 256, False, 3)
    assert (told["maximizer"], told["tolerance"], told["learning_rate"]) == ("adaptive", 0.005, 0.001)
    assert mnist_training(Scale.QUICK)["batch_size"] == 64


def test_the_papers_ascent_beside_ours() -> None:
    measured: Found = {}
    for kind, clean in (("wrm", 0.01), ("by_paper", 0.02)):
        measured[f"small:network-{kind}-0"] = {"test_error": clean, "rho_hat": 0.25}
        for attack in ("pgm", "fgm", "ifgm"):
            measured[f"small:{attack}-{kind}-0"] = sweep_of(kind, 0, clean, 10 * clean, 20 * clean)
    text = sup_norm.by_paper_text(measured)
    assert "| PGM, L2 | 1.0 / 2.0 | 10.0 / 20.0 | 20.0 / 40.0 |" in text
    assert sup_norm.by_paper_text({}) == ""
