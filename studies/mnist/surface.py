"""The loss surface around MNIST images: certificate, concavity, stability, smallest perturbations.

What several MNIST results measure of a network besides attacks (sec:mnist-real):

- the paper's certificate γρ + E_n φ_γ, beside the worst case that WRM finds on test data (fig:loss-bound);
- the share of training images at which the inner problem is strongly concave (the paper's 98%);
- ρ̂_test against 1/γ_adv (fig:mnist2 a);
- the smallest WRM perturbation that is misclassified, digit by digit (fig:mnist2 b, fig:mnist3). Here the
  attack climbs the margin: where a network is sure, cross-entropy has no gradient left in floating point.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from certus.attacks.evaluation import Trial, sweep
from certus.attacks.minimum_norm import Margin, largest_penalty
from certus.data import Samples
from certus.display.canvas import COLOURS, new_figure
from certus.inner import concave_share
from certus.kernel.evidence import Evidence
from certus.losses import ModelLoss, predicted
from certus.norms import L2
from studies.mnist.networks import MEAN_LENGTH, MNIST_METHODS, NetworkRecipe, mnist_network, random_images
from studies.strictness import outcome_of_cases
from studies.study import Measured, Part, Quantity, Verdict, subscripted
from studies.styles import METHOD_STYLES
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WINDOWS = 11  # down to 0.0002
_LOWEST, _HIGHEST = -0.5, 1.5  # of pixels that are kept for a picture, in 256 levels


def surface_part(name: str, how: NetworkRecipe, gammas: Sequence[float], samples: int) -> Part:
    """Return a part that measures ρ̂_test, mean loss and error under WRM attacks of these γ_adv, not clipped.

    Args:
        gammas: in units of C₂; samples: test images.
    """
    settings = {"network": how, "gammas": list(gammas), "samples": samples}
    return Part(name, settings, _measure_surface, effort=len(gammas) * samples * 2e-2 / 60)


def _measure_surface(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = mnist_network(workspace, settings["network"])
    data = random_images(trained, "test", settings["samples"])
    rows = []
    for share in settings["gammas"]:
        trial = Trial("wrm", None, None, gamma=share * MEAN_LENGTH, clipped=False)
        ((_, outcome),) = sweep(trained.loss, data, [trial])
        error, loss = outcome.error, outcome.loss
        assert error is not None
        rows.append(
            {
                "gamma": share * MEAN_LENGTH,
                "rho_test": outcome.rho_test,
                "loss": loss.value,
                "error": error.value,
                "low": error.low,
                "high": error.high,
            }
        )
    assert trained.run.result is not None
    level, clean = trained.run.result["robustness"], 1 - trained.run.result["test"]["accuracy"]
    phi = None if level is None else level["phi"]
    network = {"method": trained.settings.method, "gamma": trained.gamma, "rho_hat": trained.rho_hat}
    return network | {"phi": phi, "clean_error": clean, "samples": len(data), "rows": rows}


def concavity_part(name: str, how: NetworkRecipe, samples: int) -> Part:
    """Return a part that counts the training images at which ℓ − γc is strongly concave.

    The paper does not say at which points it looked: here at the images, and halfway to where T_γ takes them.
    """
    settings = {"network": how, "samples": samples, "halfway": True}
    return Part(name, settings, _measure_concavity, effort=samples * 5e-2 / 60)


def _measure_concavity(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = mnist_network(workspace, settings["network"])
    assert trained.gamma is not None
    data = random_images(trained, "train", settings["samples"])
    moved = torch.cat(
        [trained.wrm.solve(trained.loss, part.inputs, part.targets).inputs for part in _pieces(data)]
    )
    counts = {}
    for where, points in (("image", data.inputs), ("halfway", (data.inputs + moved) / 2)):
        share = concave_share(trained.loss, points, data.targets, gamma=trained.gamma, max_products=25)
        counts[where] = {"concave": share.concave, "unresolved": share.unresolved}
    return counts | {"count": len(data)}


def _pieces(data: Samples) -> Iterator[Samples]:
    return (data[first : first + 500] for first in range(0, len(data), 500))


def share_not_concave(counts: Mapping[str, Any], where: str) -> float:
    """Return the share of points, "image" or "halfway", at which ℓ − γc is not concave."""
    rest = counts["count"] - counts[where]["concave"] - counts[where]["unresolved"]
    return float(rest / counts["count"])


def unresolved(shares: Sequence[Mapping[str, Any]]) -> int:
    """Count the points that a bounded number of Hessian products left undecided."""
    return sum(share[where]["unresolved"] for share in shares for where in ("image", "halfway"))


def digits_part(name: str, networks: Mapping[str, NetworkRecipe]) -> Part:
    """Return a part that finds the smallest WRM perturbation of ten digits for several networks."""
    return Part(name, {"networks": dict(networks), "climbs": "the margin"}, _measure_digits)


def _measure_digits(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    networks = {name: mnist_network(workspace, how) for name, how in settings["networks"].items()}
    first = next(iter(networks.values()))
    test = random_images(first, "test", None)
    right = torch.ones(len(test), dtype=torch.bool)
    with torch.no_grad():
        for network in networks.values():
            answers = torch.cat([predicted(network.model(part)) for part in test.inputs.split(500)])
            right &= answers == test.targets
    # The first image of each digit that all networks read rightly, if there is one.
    order = torch.argsort(~right, stable=True)
    rows = torch.stack([order[test.targets[order] == digit][0] for digit in range(10)])
    chosen, methods = test[rows], {}
    for name, network in networks.items():
        moved, gamma = first_errors(ModelLoss(network.model, Margin()), chosen)
        with torch.no_grad():
            answers = predicted(network.model(moved))
        methods[name] = {
            "gamma": [
                value if value < math.inf else None for value in gamma.tolist()
            ],  # None: misread as it is
            "distance": L2(moved - chosen.inputs).tolist(),
            "read_as": answers.tolist(),
            "pixels": _packed(moved),
        }
    return {"digits": list(range(10)), "original": _packed(chosen.inputs), "methods": methods}


def first_errors(loss: ModelLoss, data: Samples) -> tuple[Tensor, Tensor]:
    """Lower γ_adv, in windows of a factor 3, until each image is misclassified, as in the paper.

    Returns: the moved images, and (n,) the γ_adv of each; 0, and the image itself, where none was found; ∞
        where the image itself is misread.
    """
    moved, gamma = data.inputs.clone(), torch.zeros(len(data))
    upper = 4 * MEAN_LENGTH
    for _ in range(_WINDOWS):
        left = (gamma == 0).nonzero().flatten()
        if len(left) == 0:
            break
        part = data[left]
        errors = largest_penalty(loss, part.inputs, part.targets, smallest=upper / 3, largest=upper, rounds=8)
        moved[left], gamma[left] = errors.inputs, errors.gamma
        upper /= 3
    return moved, gamma


def _packed(images: Tensor) -> list[str]:
    """Encode images in 256 levels from −0.5 to 1.5, as text."""
    levels = ((images[:, 0] - _LOWEST) / (_HIGHEST - _LOWEST) * 255).round().clamp(0, 255).to(torch.uint8)
    return [base64.b64encode(level.numpy().tobytes()).decode() for level in levels]


def _unpacked(text: str) -> Tensor:
    levels = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).float()
    return (levels / 255 * (_HIGHEST - _LOWEST) + _LOWEST).reshape(28, 28)


def draw_digits(measured: Measured) -> Figure:
    """Draw a row for each digit: the image, and what each network misreads, with its reading."""
    digits = measured["digits"]
    methods = list(digits["methods"])
    figure = new_figure(1.15 * (len(methods) + 1), 13.0)
    grid = figure.subplots(10, len(methods) + 1)
    for row in range(10):
        images = [digits["original"][row], *(digits["methods"][name]["pixels"][row] for name in methods)]
        for column, text in enumerate(images):
            axes = grid[row][column]
            axes.imshow(_unpacked(text).numpy(), cmap="gray", vmin=0, vmax=1)
            axes.set_axis_off()
            read = (
                digits["digits"][row]
                if column == 0
                else digits["methods"][methods[column - 1]]["read_as"][row]
            )
            head = ("image", *(MNIST_METHODS[name] for name in methods))[column]
            unmoved = column > 0 and digits["methods"][methods[column - 1]]["gamma"][row] == 0
            words = "none found" if unmoved else str(read)
            axes.set_title(f"{head}: {words}" if row == 0 else words, fontsize=9, pad=2)
    return figure


def draw_stability(measured: Measured) -> Figure:
    """Draw fig:mnist2 (a): ρ̂_test against 1/γ_adv, with a bar at the γ of training."""
    figure = new_figure(5.6, 4.2)
    axes = figure.subplots()
    for method, words in MNIST_METHODS.items():
        surface = measured[f"surface-{method}"]
        across = [MEAN_LENGTH / row["gamma"] for row in surface["rows"]]
        up = [row["rho_test"] for row in surface["rows"]]
        axes.plot(across, up, **METHOD_STYLES[words], markersize=4, label=words)
    axes.axvline(
        MEAN_LENGTH / measured["surface-wrm"]["gamma"], color="#5f5f5f", linestyle=":", label="γ of training"
    )
    axes.set(yscale="log", xlabel=subscripted("C₂ / γ_adv"), ylabel=subscripted("ρ̂_test"))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    return figure


def paper_certificate(surface: Mapping[str, Any], rho: float) -> float:
    """Return γρ + E_n φ_γ, on training data, by an ascent: an estimate, without ε_n(t)."""
    return float(surface["phi"] + surface["gamma"] * rho)


def certificate_verdict(surface: Mapping[str, Any], label: str, panel: str = "") -> Verdict:
    """Compare the paper's certificate with what WRM attains on test data."""
    held = [paper_certificate(surface, row["rho_test"]) >= row["loss"] for row in surface["rows"]]
    own = min(surface["rows"], key=lambda row: abs(row["gamma"] - surface["gamma"]))
    return Verdict(
        name="certificate",
        label=label,
        claim=f"{panel}The certificate bounds the worst case on the test data at every ρ.",
        rule="at nine tenths of ρ a certificate no smaller than what WRM attains on test data; *partly*: at "
        "half",
        outcome=outcome_of_cases(held),
        ours={
            "values of ρ": Quantity(len(held), places=0),
            "above at": Quantity(sum(held), places=0),
            "mean of φ, training data": Quantity(surface["phi"], places=3),
            "test data": Quantity(own["loss"] - own["gamma"] * own["rho_test"], places=3),
        },
        evidence=Evidence.ATTAINED,
    )


def draw_paper_certificate(measured: Measured) -> Figure:
    """Draw fig:loss-bound (b): the certificate beside the worst case on test data that WRM attains."""
    surface = measured["surface-wrm"]
    points = sorted(surface["rows"], key=lambda row: row["rho_test"])
    rhos = [row["rho_test"] for row in points]
    figure = new_figure(5.6, 4.4)
    axes = figure.subplots()
    line = [paper_certificate(surface, rho) for rho in rhos]
    axes.plot(rhos, line, color=COLOURS[0], label="the paper's certificate (estimated)")
    axes.plot(
        rhos,
        [row["loss"] for row in points],
        "s--",
        color=COLOURS[1],
        label="worst case found on test data (attained)",
    )
    axes.axvline(surface["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ reached in training")
    axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss", xlim=(0, 1.03 * max(rhos)))
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize="small")
    return figure
