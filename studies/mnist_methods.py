"""MNIST at the paper's small budget (sec:mnist-real): five methods, attacks, stability, certificate.

γ = 0.04 C₂ for WRM; FGM, IFGM and PGM move by ε = √ρ̂_n(θ_WRM) in L2 (eqn:fgm-fair). ERM and WRM have three
seeds, the others one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from certus.display.attack_figures import sweep_figure
from studies.mnist_claims import method_claims, trained_as
from studies.mnist_networks import (
    MEAN_LENGTH,
    MNIST_METHODS,
    SMALL_BUDGET,
    NetworkRecipe,
    mnist_training,
    recipe,
    training_part,
)
from studies.mnist_surface import (
    concavity_part,
    digits_part,
    draw_digits,
    draw_paper_certificate,
    draw_stability,
    surface_part,
)
from studies.mnist_sweeps import (
    NORMS_SHOWN,
    SWEPT_ATTACKS,
    attack_panels,
    error_table,
    sweep_part,
)
from studies.page import markdown_table
from studies.reproduction import Extent, Measured, Part, Picture, Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REPEATED = ("erm", "wrm")
_MINUTES = {"erm": 8.0, "wrm": 33.0, "fgm": 16.0, "ifgm": 52.0, "pgm": 52.0}


def small_budget_network(extent: Extent, method: str, seed: int = 0) -> NetworkRecipe:
    """One of the five at γ = 0.04 C₂: 10 epochs, and 4 for IFGM and PGM."""
    options: dict[str, Any] = {"seed": seed}
    if method == "wrm":
        options["gamma"] = SMALL_BUDGET
    elif method != "erm":
        options |= {"norm": "2", "as_far_as": small_budget_network(extent, "wrm")}
    return recipe(extent, method, 10, 4, **options)


def _strengths(extent: Extent) -> tuple[dict[str, list[float]], int]:
    """Norm → strengths in units of C_p; and how many images are attacked."""
    quick = extent is Extent.QUICK
    shares = [0.05, 0.15] if quick else [0.025, 0.05, 0.1, 0.15, 0.2]
    return {norm: list(shares) for norm in NORMS_SHOWN}, 50 if quick else 1000


def small_budget_sweeps(extent: Extent, methods: Iterable[str] = MNIST_METHODS) -> list[Part]:
    """Three attacks on each network: ``ATTACK-METHOD-0``."""
    (strengths, samples), twice = _strengths(extent), (False, True)
    sides = dict.fromkeys(SWEPT_ATTACKS, (False,) if extent is Extent.QUICK else twice) | {"pgm": twice}
    return [
        sweep_part(
            f"{attack}-{name}-0",
            small_budget_network(extent, name),
            attack,
            strengths,
            samples,
            sides[attack],
        )
        for attack in SWEPT_ATTACKS
        for name in methods
    ]


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    strengths, samples = _strengths(extent)
    networks = {name: small_budget_network(extent, name) for name in MNIST_METHODS}
    parts = [training_part("network-wrm-0", networks["wrm"], _MINUTES["wrm"])]
    parts += [
        training_part(f"network-{name}-0", how, _MINUTES[name])
        for name, how in networks.items()
        if name != "wrm"
    ]
    parts += small_budget_sweeps(extent)
    gammas = [0.2, 0.08, 0.04] if quick else [0.2, 0.12, 0.08, 0.06, 0.05, 0.04, 0.03, 0.025, 0.02]
    parts += [surface_part(f"surface-{name}", how, gammas, samples) for name, how in networks.items()]
    parts += [
        concavity_part("concavity-0", networks["wrm"], 100 if quick else 2000),
        digits_part("digits", networks),
    ]
    for seed in () if quick else (1, 2):
        for name in _REPEATED:
            how = small_budget_network(extent, name, seed)
            parts.append(training_part(f"network-{name}-{seed}", how, _MINUTES[name]))
            parts.append(sweep_part(f"pgm-{name}-{seed}", how, "pgm", strengths, samples))
            if name == "wrm":
                parts.append(concavity_part(f"concavity-{seed}", how, 2000))
    return parts


def _marks(measured: Measured) -> dict[str, float | None]:
    """The bar of the L2 panels: √ρ̂ in units of C₂."""
    return {"2": measured["network-wrm-0"]["rho_hat"] ** 0.5 / MEAN_LENGTH, "inf": None}


def _draw_attacks(*attacks: str, clipped: bool = False) -> Any:
    def draw(measured: Measured) -> Figure:
        return sweep_figure(attack_panels(measured, _marks(measured), attacks, clipped), columns=2)

    return draw


def _text(measured: Measured) -> str:
    rows = []
    for name, words in MNIST_METHODS.items():
        ones = trained_as(measured, name)
        budget = ones[0]["epsilon"] or (ones[0]["rho_hat"] or 0.0) ** 0.5
        reach = f"{budget:.3f} = {budget / MEAN_LENGTH:.3f} C₂" if budget else "–"
        errors = ", ".join(f"{one['test_error']:.2%}" for one in ones)
        rows.append([words, str(ones[0]["epochs"]), reach, errors])
    networks = markdown_table(["method", "epochs", "ε, and √ρ̂ of WRM", "test error by seed"], rows)

    def errors_of(name: str) -> str:
        rows = measured[f"surface-{name}"]["rows"]
        return f"{min(rows, key=lambda row: abs(row['gamma'] - SMALL_BUDGET))['error']:.1%}"

    kept = measured["pgm-erm-0"]["rows"]
    sides = [side for side in (False, True) if any(row["clipped"] == side for row in kept)]
    tables = [error_table(measured, "pgm", norm, side) for norm in NORMS_SHOWN for side in sides]
    words = (
        f"Test error in percent on {measured['pgm-erm-0']['samples']:,} random test images. Where a method "
        "has several seeds, this is their mean, and the bands of the figures are their range; else they "
        "are 95% intervals. The order of methods is judged beyond 0.05 C: a clear lead of WRM somewhere is a "
        "yes, unless another one leads it clearly. An attack only finds errors: where an attack that may do "
        "more finds less, it failed. So do WRM attacks on "
        "networks that are sure of themselves, whose cross-entropy has no gradient left: the error they "
        f"find at γ_adv = γ is {errors_of('erm')} with ERM and {errors_of('wrm')} with WRM, though the few "
        "images of ERM that do move go far. For that reason the smallest perturbations of ten digits climb "
        "the margin."
    )
    return "\n\n".join([networks, words, *tables])


REPRODUCTION = Reproduction(
    name="mnist",
    title="MNIST: five methods under attack",
    shows=("fig:loss-bound", "fig:mnist", "fig:mnist2", "fig:mnist3", "fig:mnist-fgm", "sec:mnist-real"),
    minutes={Extent.QUICK: 1.5, Extent.PAPER: 160},
    parts=_parts,
    pictures=(
        Picture(
            "pgm",
            "Test error under PGM attacks (fig:mnist); the bar is the budget of training.",
            _draw_attacks("pgm"),
        ),
        Picture(
            "fgm", "Test error under FGM and IFGM attacks (fig:mnist-fgm).", _draw_attacks("fgm", "ifgm")
        ),
        Picture(
            "clipped", "The same, kept in the box of pixels.", _draw_attacks(*SWEPT_ATTACKS, clipped=True)
        ),
        Picture("stability", "How far WRM attacks move test images (fig:mnist2 a).", draw_stability),
        Picture(
            "digits",
            "The smallest WRM perturbation that each network misreads, and what it reads (fig:mnist2 b, "
            "fig:mnist3); the attack climbs the margin.",
            draw_digits,
        ),
        Picture(
            "certificate",
            "WRM: the paper's certificate and what is attained (fig:loss-bound b).",
            draw_paper_certificate,
        ),
    ),
    statements=method_claims,
    text=_text,
    smaller={
        Extent.QUICK: "800 training images, 1 or 2 epochs, one seed; attacks on 50 test images.",
        Extent.PAPER: "Plain cross-entropy, as the paper is written (its authors' code smooths the labels). "
        "10 epochs, and 4 for IFGM and PGM, which may cost them robustness; three seeds for ERM and WRM, one "
        "for the others; attacks on 1,000 random test images. Clipped attacks, FGM and IFGM are on the first "
        "seed alone.",
    },
    needs=("mnist",),
    training=mnist_training,
)
