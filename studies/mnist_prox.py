"""All methods in the sup-norm, WRM by the proximal ascent (fig:mnist-proxsmall and -proxbig).

The baselines move by ε = √ρ̂ of the sup-norm cost. The paper does not give its γ; here γ follows ρ, and ρ is
the square of the ε of eq:inf-from-2, so that ρ̂ = ρ (within 5%) and the baselines are those of `mnist-inf`.
"""

from __future__ import annotations

from collections.abc import Mapping

from studies.mnist_families import (
    ATTACK_UNITS,
    FEWER_EPOCHS,
    QUICK_FAMILY,
    SHORTER,
    draw_family,
    family_of,
    family_text,
    large_budget_wrm,
    of_family,
    small_budget_wrm,
    sup_family_parts,
)
from studies.mnist_networks import mnist_training, recipe
from studies.mnist_sup_claims import SUP_RULES, sup_claims
from studies.reproduction import Extent, Measured, Part, Picture, Reproduction

_BARS = "Dotted, in the sup-norm: √ρ̂ of WRM; shaded: 95% intervals."
_LABELS = {"small": "fig:mnist-proxsmall", "large": "fig:mnist-proxbig"}


def _parts(extent: Extent) -> list[Part]:
    budgets = {"small": small_budget_wrm(extent), "large": large_budget_wrm(extent)}
    parts = []
    for name, like in budgets.items():
        wrm = recipe(extent, "wrm", FEWER_EPOCHS, cost="linf", norm="inf", as_far_as=like)
        parts += sup_family_parts(extent, name, family_of(extent, wrm, "inf", budget=like))
    return parts


def _marks(found: Measured) -> Mapping[str, float | None]:
    return {"2": None, "inf": found["network-wrm-0"]["rho_hat"] ** 0.5}


def _text(measured: Measured) -> str:
    budgets = []
    for name in _LABELS:
        found = of_family(measured, name)
        epsilon, reached = found["network-fgm-0"]["epsilon"], found["network-wrm-0"]["rho_hat"] ** 0.5
        budgets.append(f"{reached:.4f} for {epsilon:.4f} ({reached / epsilon - 1:+.1%})")
    words = (
        "The paper gives no γ for the sup-norm cost, and moves the others by ε = √ρ̂. Here ε is that of "
        "`mnist-inf` (eq:inf-from-2), so that the others are the same networks, and WRM finds the γ at which "
        f"√ρ̂ is ε. It reached {' and '.join(budgets)}."
    )
    return "\n\n".join(
        [ATTACK_UNITS, SUP_RULES, words, *(family_text(measured, name, "inf", "inf") for name in _LABELS)]
    )


REPRODUCTION = Reproduction(
    name="mnist-prox",
    title="MNIST: all methods in the sup-norm",
    shows=("eqn:sup-cost", "fig:mnist-proxsmall", "fig:mnist-proxbig"),
    minutes={Extent.QUICK: 1.5, Extent.PAPER: 60},
    parts=_parts,
    pictures=(
        Picture("small", f"Small budget (fig:mnist-proxsmall). {_BARS}", draw_family("small", _marks)),
        Picture("large", f"Large budget (fig:mnist-proxbig). {_BARS}", draw_family("large", _marks)),
    ),
    statements=lambda measured: sup_claims(measured, _LABELS, "Similar trends: "),
    text=_text,
    smaller={Extent.QUICK: QUICK_FAMILY, Extent.PAPER: SHORTER},
    needs=("mnist",),
    training=mnist_training,
)
