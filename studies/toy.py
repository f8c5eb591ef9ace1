"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and the certificate beside the worst case.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The
paper gives neither the number of samples nor the optimizer: here 10,000 points, Adam with a step of 0.01,
batches of 128. Some networks are trained again with a step that falls to 0. The inner problem of WRM is
solved by this library's ascent until its tolerance, not by the paper's 15 steps.

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

from certus.bounds import input_smoothness
from certus.certificates import certify
from certus.datasets.bundled import INNER_RADIUS, OUTER_RADIUS, rings
from certus.display.canvas import COLOURS, new_figure
from certus.inner import WRM, concave_share, default_maximizer
from certus.kernel.evidence import Evidence
from certus.runs.loaded_run import LoadedRun
from certus.runs.settings import Settings
from studies.page import markdown_table, training_settings
from studies.strictness import meets_share, outcome_of_cases
from studies.study import (
    Measured,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
    subscripted,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOY_GAMMA = 2.0
FARTHEST = 4.0
TOY_MODELS = {"relu": "toy-relu", "elu": "toy"}
METHOD_NAMES = {"erm": "ERM", "fgm": "FGM", "wrm": "WRM"}


def measure_boundaries(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return boundaries and errors of the three networks of one activation and seed."""
    schedule = settings.get("schedule", "constant")
    networks = three_networks(
        workspace, settings["activation"], settings["seed"], settings["epochs"], schedule
    )
    result: dict[str, Any] = {"activation": settings["activation"], "schedule": schedule, "methods": {}}
    for name, trained in networks.items():
        radii = boundary_radii(trained.loss.model)
        result["methods"][name] = {
            "test_error": _error(trained),
            "mean_radius": radii.mean().item(),
            "asymmetry": (radii.std() / radii.mean()).item(),
            "open_rays": int((radii >= FARTHEST).sum()),
            "lines": _lines(trained.loss.model) if settings["seed"] == 0 else None,
        }
    wrm, train = networks["wrm"], networks["wrm"].data.train
    result["rho_hat"] = wrm.rho_hat
    share = (
        concave_share(wrm.loss, train.inputs, train.targets, gamma=TOY_GAMMA)
        if settings["activation"] == "elu"
        else None
    )
    result["concave_share"] = None if share is None else share.fraction
    bound = input_smoothness(wrm.loss.model, input_shape=(2,))
    result["proven_curvature"] = bound.curvature if math.isfinite(bound.curvature) else None
    result["evidence"] = str(bound.evidence)
    return result


def toy_settings(activation: str, seed: int, epochs: int, schedule: str, **method: Any) -> Settings:
    """Return the training settings of the rings; the paper gives no optimizer, step or batch."""
    return Settings(
        data="rings",
        model=TOY_MODELS[activation],
        epochs=epochs,
        learning_rate=0.01,
        schedule=schedule,
        seed=seed,
        **method,
    )


def three_networks(
    workspace: Workspace, activation: str, seed: int, epochs: int, schedule: str = "constant"
) -> dict[str, LoadedRun]:
    """Load or train ERM, FGM and WRM; FGM moves by ε with ε² = ρ̂_n(θ_WRM) [eqn:fgm-fair]."""

    def train(**method: Any) -> LoadedRun:
        return workspace.network(toy_settings(activation, seed, epochs, schedule, **method))

    wrm = train(method="wrm", gamma=TOY_GAMMA)
    assert wrm.rho_hat is not None
    fgm = train(method="fgm", norm="2", epsilon=math.sqrt(wrm.rho_hat))
    return {"erm": train(method="erm"), "fgm": fgm, "wrm": wrm}


def boundary_radii(model: nn.Module, rays: int = 360) -> Tensor:
    """Return (rays,) distances at which the predicted class first changes; at most ``FARTHEST``."""
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
    """Return the boundary as polygons in the square [−3.2, 3.2]²."""
    from contourpy import contour_generator

    axis = torch.linspace(-3.2, 3.2, 161)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    with torch.no_grad():
        outputs = model(grid.reshape(-1, 2)).reshape(*grid.shape[:2], 2)
    margin = (outputs[..., 1] - outputs[..., 0]).numpy()
    contours: Any = contour_generator(axis.numpy(), axis.numpy(), margin).lines(0.0)
    return [[[round(float(x), 3), round(float(y), 3)] for x, y in line] for line in contours]


def _error(trained: LoadedRun) -> float:
    test = trained.data.test
    with torch.no_grad():
        return float((trained.loss.model(test.inputs).argmax(1) != test.targets).double().mean())


def measure_toy_certificate(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure fig:loss-bound (a): the paper's two curves, and our bracket, for WRM with ELUs."""
    trained = three_networks(workspace, "elu", settings["seed"], settings["epochs"])["wrm"]
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
    proven = certify(trained.loss.model, test, rho=settings["rhos"], progress=False)
    curve = [proven.bracket(rho) for rho in settings["rhos"]]
    return {
        "rho_hat": trained.rho_hat,
        "intercept": solved.value.double().mean().item(),
        "adversary": adversary,
        "bracket": [
            {"rho": entry.rho, "at_least": entry.loss_low, "at_most": entry.loss_high} for entry in curve
        ],
    }


_COLOUR_OF = {"erm": COLOURS[4], "fgm": COLOURS[3], "wrm": COLOURS[2]}  # yellow, purple, green: the paper's


def draw_boundaries(measured: Measured) -> Figure:
    figure = new_figure(8.4, 8.6)
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    data = rings(train=600).train
    for column, (activation, title) in enumerate((("relu", "(a) ReLU model"), ("elu", "(b) ELU model"))):
        methods = measured[f"{activation}-0"]["methods"]
        with_data, alone = grid[0][column], grid[1][column]
        for label, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            points = data.inputs[data.targets == label]
            with_data.scatter(points[:, 0], points[:, 1], s=4, color=colour, alpha=0.5, linewidths=0)
        _circles(alone)
        for axes in (with_data, alone):
            _boundaries(axes, methods)
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


def draw_toy_certificate(measured: Measured) -> Figure:
    """Draw the certificate near ρ̂, where the bracket was computed, and over all γ_adv."""
    certificate = measured["certificate"]
    bracket = certificate["bracket"]
    figure = new_figure(9.6, 4.8)
    near, far = figure.subplots(1, 2)
    moved = [entry["rho"] for entry in certificate["adversary"]]
    reach = max(entry["rho"] for entry in bracket)
    _certificate(near, certificate, [0.0, reach])
    ends = min(moved), max(reach, *moved)
    _certificate(far, certificate, [ends[0] * (ends[1] / ends[0]) ** (step / 100) for step in range(101)])
    near.locator_params(axis="x", nbins=5)
    near.set(xlim=(0, 1.02 * reach), ylim=(0, 1.05 * bracket[-1]["at_most"]))
    far.set(xscale="log", yscale="log")
    for axes in (near, far):
        axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss")
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = far.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _certificate(axes: Axes, certificate: Mapping[str, Any], along: Sequence[float]) -> None:
    """Draw the certificate as a line and measurements as marks."""
    line = [certificate["intercept"] + TOY_GAMMA * rho for rho in along]
    axes.plot(along, line, color=COLOURS[0], label=f"the paper's certificate, γ = {TOY_GAMMA:g} (estimated)")
    bracket = [
        entry for entry in certificate["bracket"] if entry["rho"] >= along[0]
    ]  # logarithmic axes have no 0
    rhos = [entry["rho"] for entry in bracket]
    low, high = [entry["at_least"] for entry in bracket], [entry["at_most"] for entry in bracket]
    axes.fill_between(rhos, low, high, color=COLOURS[2], alpha=0.25, linewidth=0)
    above = "worst case on test data: at most (proven)"
    axes.plot(rhos, high, ".-", color=COLOURS[2], label=above)
    axes.plot(rhos, low, ".:", color=COLOURS[2], label="at least (attained)")
    points = [(entry["rho"], entry["worst_case"]) for entry in certificate["adversary"]]
    words = subscripted("the paper's worst case on test data, one for each γ_adv (attained)")
    axes.plot(*zip(*points, strict=True), "s", ms=5, mfc="none", color=COLOURS[1], label=words)
    axes.axvline(certificate["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ reached in training")


NOT_LEARNT = 0.01
"""An error from which on a network of the rings has not learnt them."""

_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU"}


def networks_of(measured: Measured, activation: str, schedule: str = "constant") -> list[Mapping[str, Any]]:
    """Return the networks of an activation and schedule, by seed."""
    return [
        result
        for result in measured.values()
        if result.get("activation") == activation and result.get("schedule", "constant") == schedule
    ]


def has_learnt(network: Mapping[str, Any]) -> bool:
    """Return whether a network has a closed boundary and a small test error; no other is judged."""
    return bool(network["open_rays"] == 0 and network["test_error"] < NOT_LEARNT)


def network_verdicts(measured: Measured) -> list[Verdict]:
    """Judge the networks of all seeds; medians are over those that have learnt."""
    boundaries = [_about_radii(measured), _about_symmetry(measured), _about_relus(measured)]
    return [*boundaries, *_about_concavity(measured)]


def _values(
    measured: Measured, activation: str, name: str, what: str, schedule: str = "constant"
) -> dict[int, float]:
    """Return seed → a number of a method's network, of those that have learnt."""
    networks = [entry["methods"][name] for entry in networks_of(measured, activation, schedule)]
    return {seed: float(entry[what]) for seed, entry in enumerate(networks) if has_learnt(entry)}


def _medians(measured: Measured, activation: str, what: str, schedule: str = "constant") -> dict[str, float]:
    """Return the medians over seeds; NaN where none has learnt."""
    values = {name: _values(measured, activation, name, what, schedule) for name in METHOD_NAMES}
    return {name: median(ones.values()) if ones else math.nan for name, ones in values.items()}


def _all_defined(*numbers: float) -> bool:
    """Return whether all numbers are defined."""
    return not any(math.isnan(number) for number in numbers)


def _radius(value: float) -> Quantity:
    return Quantity(value, places=3)


def _asymmetry(value: float) -> Quantity:
    return Quantity(value, places=4)


def _about_radii(measured: Measured) -> Verdict:
    radii = {name: _medians(measured, name, "mean_radius") for name in TOY_MODELS}
    defined = _all_defined(*(radius for medians in radii.values() for radius in medians.values()))
    pushed = all(medians["wrm"] > max(medians["erm"], medians["fgm"]) for medians in radii.values())
    return Verdict(
        name="radius",
        label="fig:toy",
        claim="With both activations WRM pushes the boundary further outwards than ERM and FGM.",
        rule="with both activations, the largest median over seeds of the boundary's mean radius",
        outcome=outcome_of(pushed if defined else None),
        ours={
            f"{METHOD_NAMES[name]}, {_ACTIVATIONS[activation]}": _radius(radius)
            for activation, medians in radii.items()
            for name, radius in medians.items()
        },
    )


def _about_symmetry(measured: Measured) -> Verdict:
    uneven = _medians(measured, "elu", "asymmetry")
    steadier = uneven["wrm"] < min(uneven["erm"], uneven["fgm"])
    return Verdict(
        name="symmetry",
        label="fig:toy",
        claim="WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
        rule="the smallest median over seeds of the boundary's asymmetry",
        outcome=outcome_of(steadier if _all_defined(*uneven.values()) else None),
        ours={METHOD_NAMES[name]: _asymmetry(value) for name, value in uneven.items()},
    )


def _about_relus(measured: Measured) -> Verdict:
    relu, elu = (_medians(measured, name, "asymmetry")["wrm"] for name in ("relu", "elu"))
    return Verdict(
        name="ReLU",
        label="fig:toy",
        claim="WRM with ReLUs still suffers from radial asymmetry.",
        rule="a larger median asymmetry of WRM with ReLUs than with ELUs",
        outcome=outcome_of(relu > elu if _all_defined(relu, elu) else None),
        ours={"ReLU": _asymmetry(relu), "ELU": _asymmetry(elu)},
    )


def _about_concavity(measured: Measured) -> list[Verdict]:
    networks = networks_of(measured, "elu")
    shares = [network["concave_share"] for network in networks]
    bounds = [
        math.inf if network["proven_curvature"] is None else network["proven_curvature"]
        for network in networks
    ]
    whole, smooth = sum(share == 1 for share in shares), sum(bound < 2 * TOY_GAMMA for bound in bounds)
    contradicted = any(
        bound < 2 * TOY_GAMMA and share < 1 for share, bound in zip(shares, bounds, strict=True)
    )
    proven = {"best seed": min(bounds), "worst seed": max(bounds)}
    return [
        Verdict(
            name="concave",
            label="sec:toy",
            claim="With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            rule="strong concavity at all training points but half a point of per cent, on at least nine "
            "tenths of the seeds; *partly*: on half of them",
            outcome=outcome_of_cases([meets_share(share, 1.0) for share in shares]),
            ours={
                "seeds": Quantity(len(shares), places=0),
                "concave at all points": Quantity(whole, places=0),
                "smallest share of points": Quantity(min(shares), places=2, percent=True),
            },
        ),
        Verdict(
            name="threshold",
            label="section:examples",
            claim="γ above a bound on the smoothness makes it concave everywhere.",
            rule=f"on every seed, a proven curvature below 2γ = {2 * TOY_GAMMA:g}; *no* where it is below "
            "and f is not concave at a point",
            outcome=outcome_of(False if contradicted else True if smooth == len(bounds) else None),
            ours={name: Quantity(bound, places=1, side="at most") for name, bound in proven.items()},
            evidence=recorded_evidence(*networks),
        ),
    ]


_TIGHT = 0.1  # a certificate within 10% of the worst case is almost tight
_SAME = 1e-9  # of two losses that are equal but for rounding


def certificate_verdicts(certificate: Mapping[str, Any]) -> list[Verdict]:
    """Judge the measurements of ``measure_toy_certificate``."""
    attained = _attained(certificate)
    line = [certificate["intercept"] + TOY_GAMMA * rho for rho, _ in attained]
    short = [
        1 - bound / value for (_, value), bound in zip(attained, line, strict=True) if bound < value - _SAME
    ]
    level = certificate["rho_hat"]
    nearest = min(certificate["adversary"], key=lambda entry: abs(entry["rho"] - level))
    above = certificate["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    near = level / 2 <= nearest["rho"] <= 2 * level
    return [
        Verdict(
            name="bound",
            label="fig:loss-bound",
            claim="(a) The certificate bounds the worst case on the test data at every ρ.",
            rule="a certificate that is not below a loss that test data attain, for at least nine tenths of "
            "the values of ρ; *partly*: for half of them",
            outcome=outcome_of_cases([True] * (len(line) - len(short)) + [False] * len(short)),
            ours={
                "values of ρ": Quantity(len(line), places=0),
                "below at": Quantity(len(short), places=0),
                "by up to": Quantity(max(short, default=0.0), places=1, percent=True),
            },
            evidence=Evidence.ATTAINED,
        ),
        Verdict(
            name="tightness",
            label="fig:loss-bound",
            claim="(a) It is almost tight near ρ̂_n(θ_WRM).",
            rule=f"within {_TIGHT:.0%} of the attained loss, at the ρ nearest to ρ̂_n; not comparable where "
            "that is not within a factor 2",
            outcome=outcome_of(abs(gap) < _TIGHT if near else None),
            ours={
                "ρ̂_n": Quantity(level, places=3),
                "nearest ρ": Quantity(nearest["rho"], places=3),
                "certificate": Quantity(above, places=3),
                "attained": Quantity(nearest["worst_case"], places=3),
                "difference": Quantity(gap, places=1, percent=True),
            },
        ),
    ]


def _attained(certificate: Mapping[str, Any]) -> list[tuple[float, float]]:
    """ρ and a loss that test data within ρ attain: by the search for a bracket, and by the paper's worst
    case, the mean loss at T_γ of the test data."""
    searched = [(entry["rho"], entry["at_least"]) for entry in certificate["bracket"]]
    return searched + [(entry["rho"], entry["worst_case"]) for entry in certificate["adversary"]]


_EPOCHS = {Scale.QUICK: 3, Scale.FULL: 30}


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    epochs = _EPOCHS[scale]
    seeds = range(1 if quick else 10)
    networks = [
        Part(
            f"{activation}-{seed}",
            {"activation": activation, "seed": seed, "epochs": epochs},
            measure_boundaries,
        )
        for seed, activation in itertools.product(seeds, TOY_MODELS)
    ]
    settled = [
        Part(
            f"settled-{seed}",
            {"activation": "elu", "seed": seed, "epochs": epochs, "schedule": "cosine"},
            measure_boundaries,
        )
        for seed in range(1 if quick else 6)
    ]
    gammas = [1.0, 2.0, 4.0] if quick else [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 16.0]
    rhos = [0.01, 0.05, 0.15] if quick else [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2]
    settings = {"seed": 0, "epochs": epochs, "gammas": gammas, "rhos": rhos, "test": 200 if quick else 4000}
    return [*networks, *settled, Part("certificate", settings, measure_toy_certificate, effort=2.0)]


def _size(scale: Scale) -> str:
    return f"10,000 training points, {_EPOCHS[scale]} epochs. The paper gives no optimizer, step or batch."


def _verdicts(measured: Measured) -> list[Verdict]:
    return [*network_verdicts(measured), *certificate_verdicts(measured["certificate"])]


def _text(measured: Measured) -> str:
    rows = []
    groups = [*((name, "constant", name) for name in TOY_MODELS), ("elu", "cosine", "elu, step falls to 0")]
    for (activation, schedule, words), name in itertools.product(groups, METHOD_NAMES):
        networks = [entry["methods"][name] for entry in networks_of(measured, activation, schedule)]
        rows.append([f"{METHOD_NAMES[name]}, {words}", *_columns(networks)])
    head = ["network", "radius, median", "asymmetry, median", "smallest", "largest", "learnt", "test error"]
    words = (
        f"*Learnt*: networks with a closed boundary and less than {NOT_LEARNT:.0%} test error; radii and "
        "asymmetries are over these. The error is the mean over all networks."
    )
    return f"{markdown_table(head, rows)}\n\n{words}"


def _columns(networks: Sequence[Mapping[str, Any]]) -> list[str]:
    learnt = [network for network in networks if has_learnt(network)]
    error = fmean(network["test_error"] for network in networks)
    counts = [f"{len(learnt)} of {len(networks)}", f"{error:.2%}"]
    if not learnt:
        return ["–"] * 4 + counts
    uneven = [network["asymmetry"] for network in learnt]
    radius = median(network["mean_radius"] for network in learnt)
    return [*(f"{value:.3f}" for value in (radius, median(uneven), min(uneven), max(uneven))), *counts]


STUDY = Study(
    name="toy",
    title="Synthetic rings: boundaries and a certificate",
    labels=("fig:toy", "fig:loss-bound", "sec:toy"),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 25},
    parts=_parts,
    pictures=(
        Picture(
            "boundaries",
            "Where the predicted class changes (seed 0). Top, with training data; bottom, with the "
            "edges of the two classes.",
            draw_boundaries,
        ),
        Picture(
            "certificate",
            "WRM with ELUs: the paper's certificate and worst case, and the bracket of this library; marks "
            "are what was measured. Left: near ρ̂. Right: every γ_adv that was tried, on logarithmic axes.",
            draw_toy_certificate,
        ),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={
        Scale.QUICK: f"One seed; the certificate is about 200 test points. {_size(Scale.QUICK)}",
        Scale.FULL: _size(Scale.FULL),
    },
    training=lambda scale: training_settings(
        toy_settings("elu", 0, _EPOCHS[scale], "constant", method="erm")
    ),
)
