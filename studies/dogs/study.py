"""Stanford Dogs (section:dogs), with CIFAR-10 in their place: heads on features, and pixels.

No ordinary package delivers Stanford Dogs. So the feature network is the paper's own, ResNet-50 with the
weights of ImageNet, and so are the sizes, 2,000 training photographs at 224 × 224; the photographs and their
10 classes are CIFAR-10's. The paper's numbers about its own photographs cannot be compared; what it says of
the method can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from certus._format import at_most
from certus.kernel.evidence import Evidence
from studies.dogs.attacks import (
    PIXEL_GAMMAS,
    PIXEL_METHODS,
    TITLES,
    attacked,
    enlarged_photographs,
    farthest_behind,
    fine_tuned,
    moves_of_wrm,
    table_of_errors,
    two_panels,
)
from studies.dogs.features import DOG, DOG_BREEDS, photo_features
from studies.dogs.heads import (
    HEADS,
    PAPER_GAMMA,
    PAPER_STEPS,
    condition_text,
    draw_ascent,
    head_features,
    measure_ascent,
    trained_head,
)
from studies.dogs.resnet50 import resnet50_weights
from studies.page import markdown_table
from studies.study import (
    Measured,
    Outcome,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER_BOUND = 822.5
_STANDS_STILL = 0.05  # of the whole rise, in the last half of the steps


def dog_verdicts(measured: Measured) -> list[Verdict]:
    """Judge all claims, in the paper's order."""
    erm, paper, proven = (measured[f"head-{name}"] for name in HEADS)
    return [
        _about_features(measured["features"]),
        *_about_gamma(erm, paper, proven, measured["features"]["mean_length"]),
        _about_steps(measured["ascent"]["printed"], measured["ascent"]["divided"]),
        _about_convergence(measured["ascent"]["proven"]),
        _about_heads(measured),
        _about_pixels(measured),
    ]


def _count(number: float) -> Quantity:
    return Quantity(number, places=0)


def _error(share: float) -> Quantity:
    return Quantity(share, places=1, percent=True)


def _about_features(features: Mapping[str, Any]) -> Verdict:
    return Verdict(
        name="features",
        label="section:dogs",
        claim="ResNet-50, pre-trained on ImageNet, gives 7 × 7 × 2048 semantic features in [0, 1].",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "training photographs": _count(features["train"]),
            "test photographs": _count(features["test"]),
            "dogs": _count(features["dogs"]),
            "dogs called a breed": Quantity(features["dogs_as_breeds"], places=0, percent=True),
            "others called a breed": Quantity(features["others_as_breeds"], places=0, percent=True),
        },
    )


def _about_gamma(
    erm: Mapping[str, Any], paper: Mapping[str, Any], proven: Mapping[str, Any], length: float
) -> list[Verdict]:
    return [
        Verdict(
            name="γ = 10⁵",
            label="section:dogs",
            claim="γ = 10⁵ satisfies the smoothness bound.",
            rule="2γ = 2·10⁵ above the curvature L⁺ that is proven of the head trained so here",
            outcome=outcome_of(paper["curvature"] < 2 * PAPER_GAMMA),
            paper={"bound": _PAPER_BOUND},
            ours={
                "the paper's bound": Quantity(paper["printed_bound"], places=1, side="at most"),
                "L⁺": Quantity(paper["curvature"], places=2, side="at most"),
                "smallest γ that would do": Quantity(paper["curvature"] / 2, places=2, side="at most"),
            },
            evidence=recorded_evidence(paper),
        ),
        Verdict(
            name="moved features",
            label="section:dogs",
            claim="WRM is trained at γ = 10⁵.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "mean length of the features": Quantity(length, digits=3),
                "moved by": Quantity(paper["slope"] / (2 * PAPER_GAMMA), places=6, side="at most"),
                "test error": _error(paper["test_error"]),
                "ERM's": _error(erm["test_error"]),
            },
            evidence=recorded_evidence(paper),
        ),
        Verdict(
            name="proven γ",
            label="section:dogs",
            claim="γ is chosen by a bound on the smoothness.",
            rule="2γ above the curvature L⁺ that is proven of the head trained with this γ",
            outcome=outcome_of(proven["curvature"] < 2 * proven["gamma"]),
            ours={
                "L⁺ of ERM's head": Quantity(erm["curvature"], places=2, side="at most"),
                "γ": Quantity(proven["gamma"], places=2, side="at least"),
                "tries": _count(len(proven["tried"])),
                "L⁺": Quantity(proven["curvature"], places=2, side="at most"),
                "ρ̂": Quantity(proven["rho_hat"]),
                "test error": _error(proven["test_error"]),
            },
            evidence=recorded_evidence(erm, proven),
        ),
    ]


def _about_steps(printed: list[float], divided: list[float]) -> Verdict:
    """Judge the printed steps; a trace ends where f is no longer finite."""
    return Verdict(
        name="steps",
        label="section:dogs",
        claim="20 inner steps of size η = 10.",
        rule="f no smaller after the steps than before, as printed or divided by γ",
        outcome=outcome_of(printed[-1] >= printed[0] or divided[-1] >= divided[0]),
        ours={
            "f before": Quantity(printed[0], digits=3),
            "last finite f": Quantity(printed[-1], digits=1),
            "after steps": _count(len(printed) - 1),
            "divided by γ": Quantity(divided[-1], digits=1),
            "after steps, divided by γ": _count(len(divided) - 1),
        },
        evidence=Evidence.ATTAINED,
    )


def _about_convergence(trace: Mapping[str, Any]) -> Verdict:
    last, earlier = trace["gain"][-1], trace["gain"][PAPER_STEPS // 2]
    share = abs(last - earlier) / last if last > 0 else math.inf
    return Verdict(
        name="convergence",
        label="fig:supremum",
        claim="The inner problem is solved: the curve of f converges.",
        rule=f"with steps of 1/(2γ√t), a mean of f that rises, by less than {_STANDS_STILL:.0%} of the whole "
        "rise in the last ten of 20 steps",
        outcome=outcome_of(share < _STANDS_STILL),
        ours={
            "γ": Quantity(trace["gamma"], places=2, side="at least"),
            "rise": Quantity(last),
            "share of the last ten steps": _error(share),
        },
    )


def _about_heads(measured: Measured) -> Verdict:
    return Verdict(
        name="attacked features",
        label="fig:dogs-theory",
        claim="Classification errors under PGM and WRM attacks on the features.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            f"strongest {attack.upper()}, {words}": _error(measured[f"attack-{name}"][attack][-1]["error"])
            for attack in TITLES
            for name, words in HEADS.items()
        },
        evidence=Evidence.ATTAINED,
    )


def _about_pixels(measured: Measured) -> Verdict:
    pixels = {name: measured[f"pixels-{name}"] for name in PIXEL_METHODS}
    rivals = {name: errors for name, errors in pixels.items() if name not in PIXEL_GAMMAS}
    behind, gentle = (farthest_behind({name: pixels[name], **rivals}, name) for name in ("wrm", "gentle"))
    samples, moves = pixels["wrm"]["samples"], measured["moves"]
    return Verdict(
        name="pixels",
        label="fig:dogs-hacky",
        claim="On pixels, γ = 1, WRM is competitive with the other baselines at all strengths.",
        rule="",  # the paper does not say in which units its γ is
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "farthest behind, in points": Quantity(100 * behind, places=1),
            f"at γ = {PIXEL_GAMMAS['gentle']:g}": Quantity(100 * gentle, places=1),
            "photographs": _count(samples),
            "standard error, up to": _count(50 / math.sqrt(samples)),
            "ρ before training": Quantity(moves["start"]["rho"]),
            "ρ of the others": Quantity(measured["pixels-fgm"]["epsilon"] ** 2),
            "φ after training": Quantity(moves["end"]["phi"], places=2),
        },
        evidence=Evidence.ATTAINED,
    )


STAND_IN = "CIFAR-10 is a stand-in for Stanford Dogs, which no ordinary package contains."


def _measure_features(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the network: how often ImageNet's last layer calls dogs, and others, a breed of dogs."""
    features = photo_features(workspace, settings["train"], settings["test"])
    weights = resnet50_weights()
    last, bias = (torch.from_numpy(weights[f"fc1000/{name}"].copy()) for name in ("kernel", "bias"))
    classes = (features.largest * features.test.inputs.mean((2, 3)) @ last + bias).argmax(1)
    breed = (classes >= DOG_BREEDS.start) & (classes < DOG_BREEDS.stop)
    dog = features.test.targets == DOG
    inputs = features.train.inputs
    return {
        "train": len(features.train),
        "test": len(features.test),
        "largest": features.largest,
        "zeros": float((inputs == 0).float().mean()),
        "mean_length": float(inputs.flatten(1).norm(dim=1).mean()),
        "dogs": int(dog.sum()),
        "dogs_as_breeds": float(breed[dog].float().mean()),
        "others_as_breeds": float(breed[~dog].float().mean()),
    }


def _measure_head(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train one head; return its facts and its test error."""
    how = settings["how"]
    trained = trained_head(workspace, settings["head"], how)
    test = head_features(workspace, how).test
    with torch.no_grad():
        error = float((trained.model(test.inputs).argmax(1) != test.targets).float().mean())
    return trained.facts | {"test_error": error}


def _attack_head(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    data = head_features(workspace, settings["how"])
    model = trained_head(workspace, settings["head"], settings["how"]).model
    return attacked(model, data.test[: settings["samples"]], data.train, settings["attack"])


def _measure_pixels(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    how = settings["how"]
    trained = fine_tuned(workspace, settings["method"], how)
    train = enlarged_photographs("train", how["train"], how["side"])
    test = enlarged_photographs("test", settings["samples"], how["side"])
    return trained.facts | attacked(trained.model, test, train, settings["attack"])


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    sizes = {"train": 100, "test": 50} if quick else {"train": 2000, "test": 1000}
    how: dict[str, Any] = {
        **sizes,
        "units": 32 if quick else 1024,
        "epochs": 6,
        "batch": 32 if quick else 128,
    }
    how |= {"rate": 1e-3 if quick else 1e-4, "seed": 0}
    # Sup-norms are small here: 100,352 features move at once.
    sweep: dict[str, Any] = {"pgm": [0.001, 0.004] if quick else [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]}
    sweep |= {"wrm": [1.0, 10.0] if quick else [0.2, 0.5, 1.0, 2.0, 5.0], "steps": 5 if quick else 15}
    ascent = {"how": how, "few": 32 if quick else 512}
    pixels: dict[str, Any] = {
        "train": 32 if quick else 500,
        "side": 32 if quick else 64,
        "epochs": 1 if quick else 3,
    }
    pixels |= {"batch": 16 if quick else 32, "rate": 2e-5, "seed": 0, "probe": 30}
    pixel_sweep: dict[str, Any] = {"pgm": [0.01] if quick else [0.002, 0.004, 0.008, 0.016]}
    pixel_sweep |= {"wrm": [60.0] if quick else [3.0, 10.0, 30.0, 60.0], "steps": 3 if quick else 10}
    return [
        Part("features", sizes, _measure_features, effort=5.5),
        *(Part(f"head-{name}", {"head": name, "how": how}, _measure_head, effort=6.0) for name in HEADS),
        Part("ascent", ascent, measure_ascent, effort=6.0),
        *(
            Part(
                f"attack-{name}",
                {"head": name, "how": how, "samples": 30 if quick else 300, "attack": sweep},
                _attack_head,
                effort=4.0,
            )
            for name in HEADS
        ),
        *(
            Part(
                f"pixels-{name}",
                {"method": name, "how": pixels, "samples": 16 if quick else 100, "attack": pixel_sweep},
                _measure_pixels,
                effort=7.0,
            )
            for name in ("wrm", "erm", "fgm", "pgm", "gentle")
        ),
        Part("moves", {"how": pixels, "samples": 16 if quick else 100}, moves_of_wrm, effort=1.0),
    ]


def head_sweeps(measured: Measured) -> dict[str, Mapping[str, Any]]:
    """Return legend → the attacks on one head."""
    return {words: measured[f"attack-{name}"] for name, words in HEADS.items()}


def pixel_sweeps(measured: Measured) -> dict[str, Mapping[str, Any]]:
    """Return legend → the attacks on one fine-tuned network."""
    return {words: measured[f"pixels-{name}"] for name, words in PIXEL_METHODS.items()}


def _draw_theory(measured: Measured) -> Figure:
    gamma = measured["head-proven"]["gamma"]
    mark = {"wrm": measured["attack-proven"]["C_2"] / gamma}
    return two_panels(head_sweeps(measured), "Attacks on features", HEADS["proven"], mark)


def _draw_hacky(measured: Measured) -> Figure:
    mark = {"wrm": measured["pixels-wrm"]["C_2"] / PIXEL_GAMMAS["wrm"]}
    return two_panels(pixel_sweeps(measured), "Attacks on pixels", PIXEL_METHODS["wrm"], mark)


def _text(measured: Measured) -> str:
    rows = []
    for name, words in HEADS.items():
        facts = measured[f"head-{name}"]
        reached = facts["rho_hat"]
        gamma, curvature = "", at_most(facts["curvature"], 2)
        if facts["gamma"] is not None:
            gamma, curvature = condition_text(facts["gamma"], facts["curvature"])
        rows.append(
            [
                words,
                gamma,
                curvature,
                at_most(facts["printed_bound"], 1),
                "" if reached is None else f"{reached:.3g}" if reached else "0, to the ascent's tolerance",
                f"{100 * facts['test_error']:.1f}%",
            ]
        )
    head = ["head", "γ", "L⁺ at most (proven)", "the paper's bound", "ρ̂ (estimated)", "test error"]
    return "\n\n".join(
        [
            STAND_IN + " `studies/dogs/stanford.py` reads their published folders, for those who have them.",
            markdown_table(head, rows),
            "Attacks on features, test error in percent:",
            table_of_errors(head_sweeps(measured)),
            "Attacks on pixels, test error in percent:",
            table_of_errors(pixel_sweeps(measured)),
        ]
    )


_SMALLER = (
    f"{STAND_IN} Pixels: 500 training photographs at 64 × 64, three epochs, 100 test photographs, PGM with 5 "
    "steps in training and no IFGM; the paper has 2,000 at 224 × 224. Heads are attacked on 300 test "
    "photographs."
)
_QUICK = (
    f"{STAND_IN} A quick look: 100 photographs, heads of 32 units, six epochs; pixels at 32 × 32 and 32 "
    "photographs. It shows that everything runs, and no more."
)
STUDY = Study(
    name="dogs",
    title="Features of ResNet-50, and pixels (CIFAR-10 as a stand-in for Stanford Dogs)",
    labels=("section:dogs", "fig:supremum", "fig:dogs-theory", "fig:dogs-hacky"),
    minutes={Scale.QUICK: 2, Scale.FULL: 95},
    parts=_parts,
    pictures=(
        Picture(
            "supremum",
            "f over the inner iterations. Left, as printed, it falls without end; with steps in units of "
            "1/2γ it rises and stands still. First epoch of training. CIFAR-10 as a stand-in for Stanford "
            "Dogs.",
            draw_ascent,
        ),
        Picture(
            "theory",
            "Test error of heads on features under two attacks; the bar is at the proven γ. Where "
            "dashes lie on another colour, two curves coincide. CIFAR-10 as a stand-in for Stanford Dogs.",
            _draw_theory,
        ),
        Picture(
            "hacky",
            "Test error of fine-tuned networks under two attacks on pixels; the bar is at the paper's γ = 1. "
            "CIFAR-10 as a stand-in for Stanford Dogs.",
            _draw_hacky,
        ),
    ),
    verdicts=dog_verdicts,
    text=_text,
    scope={Scale.QUICK: _QUICK, Scale.FULL: _SMALLER},
    datasets=("cifar10", "resnet50"),
)
