"""Stanford Dogs (section:dogs), with CIFAR-10 in their place: heads on features, and pixels.

No ordinary package delivers Stanford Dogs. So the feature network is the paper's own, ResNet-50 with the
weights of ImageNet, and so are the sizes, 2,000 training photographs at 224 × 224; the photographs and their
10 classes are CIFAR-10's. The paper's numbers about its own photographs cannot be compared; what it says of
the method can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from certus._format import at_most
from studies.dog_ascent import draw_ascent, measure_ascent
from studies.dog_attacks import attacked, table_of_errors, two_panels
from studies.dog_features import DOG, DOG_BREEDS, photo_features
from studies.dog_heads import HEADS, head_features, spoken_condition, trained_head
from studies.dog_pixels import (
    PIXEL_GAMMAS,
    PIXEL_METHODS,
    enlarged_photographs,
    fine_tuned,
    moves_of_wrm,
)
from studies.dog_statements import dog_statements
from studies.page import markdown_table
from studies.reproduction import Extent, Measured, Part, Picture, Reproduction
from studies.resnet50_weights import resnet50_weights
from studies.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAND_IN = "CIFAR-10 stands in for Stanford Dogs, which no ordinary package delivers."


def _measure_features(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Is it the network that it should be? What ImageNet's last layer makes of dogs, and of the others."""
    found = photo_features(workshop, settings["train"], settings["test"])
    weights = resnet50_weights()
    last, bias = (torch.from_numpy(weights[f"fc1000/{name}"].copy()) for name in ("kernel", "bias"))
    classes = (found.largest * found.test.inputs.mean((2, 3)) @ last + bias).argmax(1)
    breed = (classes >= DOG_BREEDS.start) & (classes < DOG_BREEDS.stop)
    dog = found.test.targets == DOG
    inputs = found.train.inputs
    return {
        "train": len(found.train),
        "test": len(found.test),
        "largest": found.largest,
        "zeros": float((inputs == 0).float().mean()),
        "mean_length": float(inputs.flatten(1).norm(dim=1).mean()),
        "dogs": int(dog.sum()),
        "dogs_as_breeds": float(breed[dog].float().mean()),
        "others_as_breeds": float(breed[~dog].float().mean()),
    }


def _measure_head(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train one head."""
    how = settings["how"]
    kept = trained_head(workshop, settings["head"], how)
    test = head_features(workshop, how).test
    with torch.no_grad():
        error = float((kept.model(test.inputs).argmax(1) != test.targets).float().mean())
    return kept.facts | {"test_error": error}


def _attack_head(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    data = head_features(workshop, settings["how"])
    model = trained_head(workshop, settings["head"], settings["how"]).model
    return attacked(model, data.test[: settings["samples"]], data.train, settings["attack"])


def _measure_pixels(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    how = settings["how"]
    kept = fine_tuned(workshop, settings["method"], how)
    train = enlarged_photographs("train", how["train"], how["side"])
    test = enlarged_photographs("test", settings["samples"], how["side"])
    return kept.facts | attacked(kept.model, test, train, settings["attack"])


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
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
    """Legend → the attacks on one head."""
    return {words: measured[f"attack-{name}"] for name, words in HEADS.items()}


def pixel_sweeps(measured: Measured) -> dict[str, Mapping[str, Any]]:
    """Legend → the attacks on one fine-tuned network."""
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
        found = measured[f"head-{name}"]
        reached = found["rho_hat"]
        gamma, curvature = "", at_most(found["curvature"], 2)
        if found["gamma"] is not None:
            gamma, curvature = spoken_condition(found["gamma"], found["curvature"])
        rows.append(
            [
                words,
                gamma,
                curvature,
                at_most(found["printed_bound"], 1),
                "" if reached is None else f"{reached:.3g}" if reached else "0, to the ascent's tolerance",
                f"{100 * found['test_error']:.1f}%",
            ]
        )
    head = ["head", "γ", "L⁺ at most (proven)", "the paper's bound", "ρ̂ (estimated)", "test error"]
    return "\n\n".join(
        [
            STAND_IN + " `studies/stanford_dogs.py` reads their published folders, for those who have them.",
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
REPRODUCTION = Reproduction(
    name="dogs",
    title="Features of ResNet-50, and pixels (CIFAR-10 in place of Stanford Dogs)",
    shows=("section:dogs", "fig:supremum", "fig:dogs-theory", "fig:dogs-hacky"),
    minutes={Extent.QUICK: 2, Extent.PAPER: 95},
    parts=_parts,
    pictures=(
        Picture(
            "supremum",
            "f over the inner iterations. Left, as printed, it falls without end; with steps in units of "
            "1/2γ it rises and stands still. First epoch of training. CIFAR-10 in place of Stanford Dogs.",
            draw_ascent,
        ),
        Picture(
            "theory",
            "Test error of heads on features under two attacks; the bar is at the proven γ. Where "
            "dashes lie on another colour, two curves coincide. CIFAR-10 in place of Stanford Dogs.",
            _draw_theory,
        ),
        Picture(
            "hacky",
            "Test error of fine-tuned networks under two attacks on pixels; the bar is at the paper's γ = 1. "
            "CIFAR-10 in place of Stanford Dogs.",
            _draw_hacky,
        ),
    ),
    statements=dog_statements,
    text=_text,
    smaller={Extent.QUICK: _QUICK, Extent.PAPER: _SMALLER},
    needs=("cifar10", "resnet50"),
)
