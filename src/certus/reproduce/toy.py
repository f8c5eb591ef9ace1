"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and the certificate beside the worst case.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The
paper gives neither the number of samples nor the optimizer: here 10,000 points, Adam with a step of 0.01,
batches of 128.

What "radial asymmetry" is, the paper does not say. Here: along 360 rays from the centre, the distance r at
which the predicted class first changes, at most 4; its standard deviation over its mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus.certificates import certify
from certus.data.rings import INNER_RADIUS, OUTER_RADIUS, rings
from certus.evidence import Evidence
from certus.figures.canvas import COLOURS, new_figure
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction
from certus.reproduce.workshop import Workshop
from certus.runs.settings import Settings
from certus.runs.trained import TrainedRun
from certus.smoothness import input_smoothness
from certus.surrogate import WRM, concave_share, default_maximizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOY_GAMMA = 2.0
FARTHEST = 4.0
TOY_MODELS = {"relu": "toy-relu", "elu": "toy"}
METHOD_NAMES = {"erm": "ERM", "fgm": "FGM", "wrm": "WRM"}
_COLOUR_OF = {"erm": COLOURS[4], "fgm": COLOURS[3], "wrm": COLOURS[2]}  # yellow, purple, green: the paper's


def _measure(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Three networks of one activation and seed: where their boundaries are, and how often they err."""
    networks = _networks(workshop, settings["activation"], settings["seed"], settings["epochs"])
    found: dict[str, Any] = {"activation": settings["activation"], "methods": {}}
    for name, trained in networks.items():
        radii = boundary_radii(trained.loss.model)
        found["methods"][name] = {
            "test_error": _error(trained),
            "mean_radius": radii.mean().item(),
            "asymmetry": (radii.std() / radii.mean()).item(),
            "open_rays": int((radii >= FARTHEST).sum()),
            "lines": _lines(trained.loss.model) if settings["seed"] == 0 else None,
        }
    wrm, train = networks["wrm"], networks["wrm"].data.train
    found["rho_hat"] = wrm.rho_hat
    share = (
        concave_share(wrm.loss, train.inputs, train.targets, gamma=TOY_GAMMA)
        if settings["activation"] == "elu"
        else None
    )
    found["concave_share"] = None if share is None else share.fraction
    bound = input_smoothness(wrm.loss.model, input_shape=(2,)).curvature
    found["proven_curvature"] = bound if math.isfinite(bound) else None
    return found


def _networks(workshop: Workshop, activation: str, seed: int, epochs: int) -> dict[str, TrainedRun]:
    def train(**options: Any) -> TrainedRun:
        common: dict[str, Any] = {
            "data": "rings",
            "model": TOY_MODELS[activation],
            "epochs": epochs,
            "learning_rate": 0.01,
        }
        return workshop.network(Settings(**common, seed=seed, **options))

    wrm = train(method="wrm", gamma=TOY_GAMMA)
    assert wrm.rho_hat is not None
    fgm = train(method="fgm", norm="2", epsilon=math.sqrt(wrm.rho_hat))
    return {"erm": train(method="erm"), "fgm": fgm, "wrm": wrm}


def boundary_radii(model: nn.Module, rays: int = 360) -> Tensor:
    """(rays,) the distance from the centre at which the predicted class first changes; at most "
    "``FARTHEST``."""
    angles = torch.arange(rays) * (2 * math.pi / rays)
    steps = torch.linspace(0, FARTHEST, 401)
    points = steps[None, :, None] * torch.stack([angles.cos(), angles.sin()], 1)[:, None, :]
    with torch.no_grad():
        outputs = model(points.reshape(-1, 2)).reshape(rays, len(steps), 2)
    margin = outputs[..., 1] - outputs[..., 0]
    changed = (margin > 0) != (margin[:, :1] > 0)
    first = torch.where(changed.any(1), changed.int().argmax(1), len(steps) - 1)
    before, after = margin[torch.arange(rays), first - 1], margin[torch.arange(rays), first]
    share = torch.where(changed.any(1), before / (before - after), 1.0)
    return steps[first - 1] + share * (steps[first] - steps[first - 1])


def _lines(model: nn.Module) -> list[list[list[float]]]:
    """The boundary as polygons in the square [−3.2, 3.2]²."""
    from contourpy import contour_generator

    axis = torch.linspace(-3.2, 3.2, 161)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    with torch.no_grad():
        outputs = model(grid.reshape(-1, 2)).reshape(*grid.shape[:2], 2)
    margin = (outputs[..., 1] - outputs[..., 0]).numpy()
    found: Any = contour_generator(axis.numpy(), axis.numpy(), margin).lines(0.0)
    return [[[round(float(x), 3), round(float(y), 3)] for x, y in line] for line in found]


def _error(trained: TrainedRun) -> float:
    test = trained.data.test
    with torch.no_grad():
        return float((trained.loss.model(test.inputs).argmax(1) != test.targets).double().mean())


def _measure_certificate(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """fig:loss-bound (a): the paper's two curves, and the bracket of this library, for WRM with ELUs."""
    trained = _networks(workshop, "elu", settings["seed"], settings["epochs"])["wrm"]
    train, test = trained.data.train, trained.data.test[torch.arange(settings["test"])]
    solved = trained.wrm.solve(trained.loss, train.inputs, train.targets)
    adversary = []
    for gamma in settings["gammas"]:
        maximizer = default_maximizer(trained.cost, trained.domain, tolerance=1e-5, max_gradients=64)
        moved = WRM(gamma, cost=trained.cost, domain=trained.domain, maximizer=maximizer).solve(
            trained.loss, test.inputs, test.targets
        )
        level = moved.transport_cost.double().mean().item()
        value = moved.value.double().mean().item()
        adversary.append({"gamma": gamma, "rho": level, "worst_case": value + gamma * level})
    proven = certify(trained.loss.model, test, rho=settings["rhos"])
    curve = [proven.bracket(rho) for rho in settings["rhos"]]
    return {
        "rho_hat": trained.rho_hat,
        "intercept": solved.value.double().mean().item(),
        "adversary": adversary,
        "bracket": [{"rho": one.rho, "at_least": one.loss_low, "at_most": one.loss_high} for one in curve],
    }


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    epochs = 3 if quick else 30
    seeds = range(1 if quick else 10)
    networks = [
        Part(f"{activation}-{seed}", {"activation": activation, "seed": seed, "epochs": epochs}, _measure)
        for seed, activation in itertools.product(seeds, TOY_MODELS)
    ]
    gammas = [1.0, 2.0, 4.0] if quick else [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 16.0]
    rhos = [0.01, 0.05, 0.1] if quick else [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2]
    settings = {"seed": 0, "epochs": epochs, "gammas": gammas, "rhos": rhos, "test": 200 if quick else 4000}
    return [*networks, Part("certificate", settings, _measure_certificate, effort=2.0)]


def _of(measured: Measured, activation: str) -> list[Mapping[str, Any]]:
    return [one for one in measured.values() if one.get("activation") == activation]


def _draw_boundaries(measured: Measured) -> Figure:
    figure = new_figure(8.4, 8.6)
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    data = rings(train=600).train
    for column, (activation, title) in enumerate((("relu", "(a) ReLU model"), ("elu", "(b) ELU model"))):
        found = measured[f"{activation}-0"]["methods"]
        with_data, alone = grid[0][column], grid[1][column]
        for label, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            points = data.inputs[data.targets == label]
            with_data.scatter(points[:, 0], points[:, 1], s=4, color=colour, alpha=0.5, linewidths=0)
        _circles(alone)
        for axes in (with_data, alone):
            _boundaries(axes, found)
            axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal")
            axes.spines[["top", "right"]].set_visible(False)
        with_data.set_title(f"{title}, with training data")
        alone.set_title(f"{title}, with the classes' own edges")
    handles, names = grid[0][0].get_legend_handles_labels()
    edges, edge_names = grid[1][0].get_legend_handles_labels()
    both = dict(zip([*names, *edge_names], [*handles, *edges], strict=True))
    figure.legend(both.values(), both.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _circles(axes: Axes) -> None:
    angle = torch.linspace(0, 2 * math.pi, 200)
    for number, radius in enumerate((INNER_RADIUS, OUTER_RADIUS)):
        words = "edges of the two classes" if number == 0 else "_"
        axes.plot(radius * angle.cos(), radius * angle.sin(), color="#9a9a9a", linestyle="--", label=words)


def _boundaries(axes: Axes, methods: Mapping[str, Any]) -> None:
    for name, words in METHOD_NAMES.items():
        for number, line in enumerate(methods[name]["lines"]):
            across, up = zip(*line, strict=True)
            label = words if number == 0 else "_"
            axes.plot(across, up, color=_COLOUR_OF[name], linewidth=2, label=label)


def _draw_certificate(measured: Measured) -> Figure:
    found = measured["certificate"]
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    bracket = found["bracket"]
    rhos = [one["rho"] for one in bracket]
    line = [found["intercept"] + TOY_GAMMA * rho for rho in rhos]
    axes.plot(rhos, line, color=COLOURS[0], label="the paper's certificate, γ = 2 (estimated)")
    points = sorted((one for one in found["adversary"]), key=lambda one: one["rho"])
    shown = [one for one in points if one["rho"] <= max(rhos)]
    across, up = [one["rho"] for one in shown], [one["worst_case"] for one in shown]
    axes.plot(across, up, "s--", color=COLOURS[1], label="the paper's worst case on test data (estimated)")
    low, high = [one["at_least"] for one in bracket], [one["at_most"] for one in bracket]
    axes.fill_between(rhos, low, high, color=COLOURS[2], alpha=0.25, linewidth=0)
    axes.plot(rhos, high, color=COLOURS[2], label="worst case on test data: at most (proven)")
    axes.plot(rhos, low, color=COLOURS[2], linestyle=":", label="at least (attained)")
    if found["rho_hat"] <= max(rhos):
        axes.axvline(found["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ reached in training")
    axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss", xlim=(0, max(rhos)))
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _means(measured: Measured, activation: str, what: str) -> dict[str, float]:
    found = _of(measured, activation)
    return {name: fmean(one["methods"][name][what] for one in found) for name in METHOD_NAMES}


def _medians(measured: Measured, activation: str, what: str) -> dict[str, float]:
    """A network whose boundary is open would decide the mean of ten alone."""
    found = _of(measured, activation)
    return {name: median(one["methods"][name][what] for one in found) for name in METHOD_NAMES}


def _statements(measured: Measured) -> list[Comparison]:
    return [*_about_boundaries(measured), *_about_concavity(measured), *_about_certificate(measured)]


def _about_boundaries(measured: Measured) -> list[Comparison]:
    outward = {name: _means(measured, name, "mean_radius") for name in TOY_MODELS}
    uneven = {name: _medians(measured, name, "asymmetry") for name in TOY_MODELS}
    seeds = len(_of(measured, "elu"))
    over = "one seed" if seeds == 1 else f"means over {seeds} seeds"
    among = "one seed" if seeds == 1 else f"medians of {seeds} seeds"

    def words(values: Mapping[str, float]) -> str:
        return ", ".join(f"{METHOD_NAMES[name]} {value:.3f}" for name, value in values.items())

    pushed = all(radii["wrm"] > max(radii["erm"], radii["fgm"]) for radii in outward.values())
    steadier = uneven["elu"]["wrm"] < min(uneven["elu"]["erm"], uneven["elu"]["fgm"])
    return [
        Comparison(
            "fig:toy",
            "With both activations WRM pushes the boundary further outwards than ERM and FGM.",
            f"Mean radius of the boundary, ReLU: {words(outward['relu'])}; ELU: "
            f"{words(outward['elu'])} ({over}).",
            pushed,
        ),
        Comparison(
            "fig:toy",
            "WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
            f"Asymmetry with ELU: {words(uneven['elu'])} ({among}).",
            steadier,
        ),
        Comparison(
            "fig:toy",
            "WRM with ReLUs still suffers from radial asymmetry.",
            f"Asymmetry of WRM: ReLU {uneven['relu']['wrm']:.3f}, ELU {uneven['elu']['wrm']:.3f} ({among}).",
            uneven["relu"]["wrm"] > uneven["elu"]["wrm"],
        ),
    ]


def _about_concavity(measured: Measured) -> list[Comparison]:
    chosen = _of(measured, "elu")[:3]
    shares = [one["concave_share"] for one in chosen]
    bounds = [one["proven_curvature"] for one in chosen]
    smooth = all(bound < 2 * TOY_GAMMA for bound in bounds)
    shown = ", ".join(f"{share:.1%}" for share in shares)
    return [
        Comparison(
            "sec:toy",
            "With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            f"At {shown} of the training points (seeds 0 to {len(chosen) - 1}).",
            min(shares) > 0.999,
        ),
        Comparison(
            "section:examples",
            "γ above a bound on the smoothness makes it concave everywhere.",
            f"Proven curvature at most {', '.join(f'{bound:.1f}' for bound in bounds)}, against 2γ = 4.",
            smooth,
            reason=""
            if smooth
            else "At the data it is concave, as far as points tell; everywhere it is not proven.",
            evidence=Evidence.PROVEN,
        ),
    ]


def _about_certificate(measured: Measured) -> list[Comparison]:
    found = measured["certificate"]
    line = {one["rho"]: found["intercept"] + TOY_GAMMA * one["rho"] for one in found["bracket"]}
    held = all(line[one["rho"]] >= one["at_least"] for one in found["bracket"])
    nearest = min(found["adversary"], key=lambda one: abs(one["rho"] - found["rho_hat"]))
    above = found["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    return [
        Comparison(
            "fig:loss-bound",
            "(a) The certificate bounds the worst case on the test data at every ρ.",
            "It is above what is attained on the test data at every ρ that was tried."
            if held
            else "It is below what is attained on the test data at some ρ.",
            held,
            reason="The curve is an estimate from below, without ε_n: no bound by itself.",
            evidence=Evidence.ATTAINED,
        ),
        Comparison(
            "fig:loss-bound",
            "(a) It is almost tight near ρ̂_n(θ_WRM).",
            f"At ρ = {nearest['rho']:.3f} it is {above:.3f} against {nearest['worst_case']:.3f}: {gap:+.1%}.",
            abs(gap) < 0.1,
        ),
    ]


def _text(measured: Measured) -> str:
    rows = []
    for activation, name in itertools.product(TOY_MODELS, METHOD_NAMES):
        found = [one["methods"][name] for one in _of(measured, activation)]
        rows.append([f"{METHOD_NAMES[name]}, {activation}", *_columns(found)])
    head = ["network", "mean radius", "asymmetry, median", "smallest", "largest", "open rays", "test error"]
    return markdown_table(head, rows)


def _columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    uneven = [one["asymmetry"] for one in found]
    radius, error = fmean(one["mean_radius"] for one in found), fmean(one["test_error"] for one in found)
    rays = sum(one["open_rays"] for one in found)
    numbers = [f"{value:.3f}" for value in (radius, median(uneven), min(uneven), max(uneven))]
    return [*numbers, f"{rays} of {360 * len(found)}", f"{error:.2%}"]


REPRODUCTION = Reproduction(
    name="toy",
    title="Synthetic rings: boundaries and a certificate",
    shows=("fig:toy", "fig:loss-bound", "sec:toy"),
    minutes={Extent.QUICK: 0.5, Extent.PAPER: 20},
    parts=_parts,
    pictures=(
        Picture(
            "boundaries",
            "Where the predicted class changes (seed 0). Top, with training data; bottom, with the "
            "edges of the two classes.",
            _draw_boundaries,
        ),
        Picture(
            "certificate",
            "WRM with ELUs: the paper's certificate and worst case, and the bracket of this library.",
            _draw_certificate,
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "One seed and three epochs; the certificate is about 200 test points."},
)
