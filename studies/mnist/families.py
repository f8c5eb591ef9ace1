"""Five methods at one budget under six attacks: what fig:mnist-big, -infwrm2 and -proxsmall have in common.

A *family* is one network for each method. Its parts begin with the family's name, so that a result can have
two: one at the paper's small budget and one at the large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from certus.display.figures import sweep_figure
from studies.mnist.networks import (
    LARGE_BUDGET,
    MNIST_METHODS,
    SMALL_BUDGET,
    NetworkRecipe,
    mnist_network,
    random_images,
    recipe,
    training_part,
)
from studies.mnist.small_budget import small_budget_network
from studies.mnist.sweeps import (
    NORM_WORDS,
    NORMS_SHOWN,
    SWEPT_ATTACKS,
    attack_panels,
    error_table,
    sweep_part,
)
from studies.page import markdown_table
from studies.study import Measured, Part, Scale
from studies.styles import METHOD_STYLES, with_logarithmic_errors
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Family = Mapping[str, NetworkRecipe]
FEWER_EPOCHS, FEWEST_EPOCHS = 4, 2
SHORTER = (
    "Trainings are perhaps shorter than the paper's: 4 epochs for WRM and FGM, 2 for IFGM and PGM, whose "
    "steps cost most, 10 for ERM, as in `mnist`. So errors of different methods do not belong to equally "
    "long trainings. One seed; attacks on 500 random test images, not clipped."
)
LONGER_WRM, BY_PAPER, LONGER_EPOCHS = "longer", "by_paper", 10
"""Other trainings of WRM: for more epochs, and by the paper's ascent."""
ATTACK_UNITS = (
    "Errors under attack are percentages of the attacked images; the test error is on all test images, so it "
    "differs from the error at 0 C. C is the mean norm of a training image: C₂ = 9.22, C_∞ = 1.00. γ is in "
    "units of the paper's C₂ = 9.21, which includes the 5,000 images that are held out here."
)
QUICK_FAMILY = "800 training images, 1 or 2 epochs, one seed; attacks on 50 test images."
_MINUTES = {"erm": 8.0, "wrm": 14.0, "fgm": 7.0, "ifgm": 26.0, "pgm": 26.0}
_STRENGTHS = {"small": [0.05, 0.1, 0.15, 0.2], "large": [0.05, 0.1, 0.2, 0.3, 0.4]}


def small_budget_wrm(scale: Scale) -> NetworkRecipe:
    """Return the recipe of WRM in L2 at γ = 0.04 C₂, with as many epochs as its rivals have here."""
    return recipe(scale, "wrm", FEWER_EPOCHS, gamma=SMALL_BUDGET)


def large_budget_wrm(scale: Scale) -> NetworkRecipe:
    """Return the recipe of WRM in L2 at γ = 0.02 C₂."""
    return recipe(scale, "wrm", FEWER_EPOCHS, gamma=LARGE_BUDGET)


def family_of(scale: Scale, wrm: NetworkRecipe, norm: str, budget: NetworkRecipe | None = None) -> Family:
    """Return the recipes of ERM, a WRM, and FGM, IFGM and PGM in a norm with its budget, or another WRM's."""
    like = wrm if budget is None else budget
    others = {
        method: recipe(scale, method, FEWER_EPOCHS, FEWEST_EPOCHS, norm=norm, as_far_as=like)
        for method in ("fgm", "ifgm", "pgm")
    }
    return {"erm": small_budget_network(scale, "erm"), "wrm": wrm, **others}


def family_parts(scale: Scale, name: str, family: Family) -> list[Part]:
    """Return the parts that train and attack a family; ``name``, small or large, selects the strengths."""
    strengths, samples = _strengths_of(scale, name)
    parts = [
        training_part(f"{name}:network-{method}-0", how, _MINUTES[method]) for method, how in family.items()
    ]
    attacks = ("pgm", "fgm") if scale is Scale.QUICK else SWEPT_ATTACKS
    return parts + [
        sweep_part(f"{name}:{attack}-{method}-0", how, attack, strengths, samples)
        for attack in attacks
        for method, how in family.items()
    ]


def sup_family_parts(scale: Scale, name: str, family: Family) -> list[Part]:
    """Return the same parts, and one that measures how far WRM moves each image in the sup-norm."""
    _, samples = _strengths_of(scale, name)
    settings = {"network": family["wrm"], "samples": samples}
    lengths = Part(f"{name}:lengths-wrm-0", settings, _measure_lengths, effort=0.5)
    return [*family_parts(scale, name, family), lengths]


def other_wrm_parts() -> list[Part]:
    """Return attacks on WRMs of 10 epochs, and at the small budget on one trained by the paper's ascent."""
    longer = {
        "small": small_budget_network(Scale.FULL, "wrm"),
        "large": recipe(Scale.FULL, "wrm", LONGER_EPOCHS, gamma=LARGE_BUDGET),
    }
    by_paper = {"small": small_budget_wrm(Scale.FULL) | {"maximizer": "paper"}}
    parts = [training_part(f"small:network-{BY_PAPER}-0", by_paper["small"], 60.0)]
    for kind, networks in ((LONGER_WRM, longer), (BY_PAPER, by_paper)):
        for name, how in networks.items():
            strengths, samples = _strengths_of(Scale.FULL, name)
            parts += [
                sweep_part(f"{name}:{attack}-{kind}-0", how, attack, strengths, samples)
                for attack in SWEPT_ATTACKS
            ]
    return parts


def _measure_lengths(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the percentiles 0 to 100 of how far WRM moves training images, in the sup-norm."""
    trained = mnist_network(workspace, settings["network"])
    data = random_images(trained, "train", settings["samples"])
    moved = trained.wrm.solve(trained.loss, data.inputs, data.targets).inputs
    lengths = (moved - data.inputs).abs().flatten(1).amax(1)
    places = torch.linspace(0, 1, 101, dtype=lengths.dtype)
    return {"samples": len(data), "percentiles": torch.quantile(lengths, places).tolist()}


def moved_beyond(family: Measured) -> str:
    """Describe the share of images that WRM moves farther than ε, though the root mean squares are equal."""
    lengths, epsilon = family["lengths-wrm-0"]["percentiles"], family["network-fgm-0"]["epsilon"]
    beyond = sum(length > epsilon for length in lengths) / len(lengths)
    farthest = f"up to {lengths[-1]:.2f}"
    return f"it moves about {beyond:.0%} of the images by more than the others' ε = {epsilon:.3f}, {farthest}"


def _strengths_of(scale: Scale, name: str) -> tuple[dict[str, list[float]], int]:
    """Return norm → strengths in units of C_p; and the number of attacked images."""
    quick = scale is Scale.QUICK
    shares = _STRENGTHS[name][1::2] if quick else _STRENGTHS[name]
    return dict.fromkeys(NORMS_SHOWN, shares), 50 if quick else 500


def of_family(measured: Measured, name: str) -> dict[str, Any]:
    """Return the measurements of one family, by part names without its prefix."""
    begin = f"{name}:"
    return {part.removeprefix(begin): entry for part, entry in measured.items() if part.startswith(begin)}


def attacks_in(family: Measured) -> list[str]:
    """Return the attacks that were measured of a family; a quick look has fewer."""
    return [attack for attack in SWEPT_ATTACKS if f"{attack}-wrm-0" in family]


def draw_family(name: str, marks: Callable[[Measured], Mapping[str, float | None]]) -> Any:
    """Return a function that draws six panels in the paper's order."""

    def draw(measured: Measured) -> Figure:
        family = of_family(measured, name)
        panels = attack_panels(family, marks(family))
        return with_logarithmic_errors(sweep_figure(panels, columns=2, styles=METHOD_STYLES))

    return draw


def family_text(measured: Measured, name: str, wrm_norm: str, norm: str) -> str:
    """Return tables of the networks and of their errors under attacks in both norms.

    Args:
        wrm_norm, norm: in which WRM and the others were trained.
    """
    family, rows = of_family(measured, name), []
    for method, words in MNIST_METHODS.items():
        entry = family[f"network-{method}-0"]
        budget = gamma = "–"
        if entry["epsilon"]:
            budget = f"ε = {entry['epsilon']:.4f} in {NORM_WORDS[norm]}"
        elif entry["rho_hat"]:
            budget = f"√ρ̂ = {entry['rho_hat'] ** 0.5:.4f} in {NORM_WORDS[wrm_norm]}"
            gamma = f"{entry['gamma']:.4g}"
        rows.append([words, str(entry["epochs"]), gamma, budget, f"{entry['test_error']:.2%}"])
    head = [f"{name} budget", "epochs", "γ", "budget", "test error"]
    texts = [markdown_table(head, rows)]
    if "lengths-wrm-0" in family:
        lengths = family["lengths-wrm-0"]
        texts.append(
            f"WRM limits the root mean square distance only. Of {lengths['samples']} training images it "
            f"moves half by less than {lengths['percentiles'][50]:.3f} in the sup-norm; "
            f"{moved_beyond(family)}."
        )
    texts += [
        error_table(family, attack, entry, False) for attack in attacks_in(family) for entry in NORMS_SHOWN
    ]
    return "\n\n".join(texts)
