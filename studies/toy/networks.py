"""Networks on the synthetic rings (sec:toy), and what is measured of them.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2 and the paper's ascent of 15 steps that decrease
as 1/√t, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The paper gives neither the number of samples nor the
optimizer: here 10,000 points, 30 epochs of Adam with batches of 128 and a step of 0.01 that falls to 0 as a
cosine. Beside this: the library's adaptive ascent, and a constant step.

What "radial asymmetry" is, the paper does not say. Here: along 360 rays from the centre, the distance r at
which the predicted class first changes, at most 4; its standard deviation over its mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from certus.attacks import FGSM
from certus.bounds import input_smoothness
from certus.certificates import certify
from certus.datasets import load
from certus.inner import WRM, Maximizer, PaperAscent, concave_share, default_maximizer
from certus.losses import Loss, ModelLoss
from certus.models import build_model
from studies.toy.side_by_side import Move, SideBySide, train_side_by_side
from studies.workspace import Workspace

TOY_GAMMA = 2.0
FARTHEST = 4.0
BATCH_SIZE, LEARNING_RATE = 128, 0.01
TOY_MODELS = {"relu": "toy-relu", "elu": "toy"}
METHODS = ("erm", "fgm", "wrm")
NOT_LEARNT = 0.01
"""An error from which on a network of the rings has not learnt them."""

ASCENTS: dict[str, Maximizer] = {
    "paper": PaperAscent(15),
    "adaptive": default_maximizer(WRM(TOY_GAMMA).cost),
}
_PRECISE = default_maximizer(WRM(TOY_GAMMA).cost, tolerance=1e-5, max_gradients=150)


def measure_networks(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train the networks of one activation, ascent and schedule on all seeds, and measure them."""
    models = {method: networks(workspace, settings, method) for method in METHODS}
    elu, shown = settings["activation"] == "elu", shown_seed(workspace, settings)
    bounds = [input_smoothness(model, input_shape=(2,)) for model in models["wrm"]] if elu else []
    about = {"study": "toy", **settings}
    levels = workspace.cached({"what": "levels", **about}, lambda: _levels(models["wrm"], precise=elu))
    concave = [
        workspace.cached_number({"what": f"concave {seed}", **about}, partial(_concave, model))
        for seed, model in enumerate(models["wrm"] if elu else [])
    ]
    return {
        **{name: settings[name] for name in ("activation", "ascent", "schedule")},
        "methods": {method: [_boundary(model) for model in models[method]] for method in METHODS},
        "levels": levels,
        "epsilon": radii_of_fgm(models["wrm"], settings["ascent"]).tolist(),
        "concave": concave,
        "curvature": [bound.curvature if math.isfinite(bound.curvature) else None for bound in bounds],
        "evidence": str(bounds[0].evidence) if bounds else None,
        "shown": {"seed": shown, "lines": {method: _lines(models[method][shown]) for method in METHODS}},
    }


def networks(workspace: Workspace, settings: Mapping[str, Any], method: str) -> list[nn.Sequential]:
    """Load or train the networks of a method, one for each seed."""
    about = {name: settings[name] for name in ("activation", "schedule", "epochs", "seeds")}
    if method != "erm":  # which has no ascent
        about["ascent"] = settings["ascent"]

    def train() -> list[list[float]]:
        move = None if method == "erm" else _move(workspace, settings, method)
        trained = train_side_by_side(
            _untrained(settings),
            load("rings").train,
            move,
            classes=2,
            epochs=settings["epochs"],
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            cosine=settings["schedule"] == "cosine",
            seeds=range(settings["seeds"]),
        )
        return [nn.utils.parameters_to_vector(model.parameters()).tolist() for model in trained]

    weights = workspace.cached({"study": "toy", "method": method, **about}, train)
    models = _untrained(settings)
    for model, values in zip(models, weights, strict=True):
        nn.utils.vector_to_parameters(torch.tensor(values), model.parameters())
    return [model.eval().requires_grad_(False) for model in models]


def _untrained(settings: Mapping[str, Any]) -> list[nn.Sequential]:
    models = []
    for seed in range(settings["seeds"]):
        model = build_model(TOY_MODELS[settings["activation"]], load("rings"), seed)
        assert isinstance(model, nn.Sequential)
        models.append(model)
    return models


def _move(workspace: Workspace, settings: Mapping[str, Any], method: str) -> Move:
    """Return how a method moves the batches of all networks."""
    if method == "wrm":
        wrm = WRM(TOY_GAMMA, maximizer=ASCENTS[settings["ascent"]])
        return lambda loss, inputs, targets: wrm.perturb(loss, inputs, targets).inputs
    radii = radii_of_fgm(networks(workspace, settings, "wrm"), settings["ascent"])

    def fgm(loss: Loss, inputs: Tensor, targets: Tensor) -> Tensor:
        return FGSM(epsilon=radii[targets // 2], norm=2)(loss, inputs, targets)

    return fgm


def radii_of_fgm(models: Sequence[nn.Sequential], ascent: str) -> Tensor:
    """Return (networks,) radii ε with ε² = ρ̂_n(θ_WRM) [eqn:fgm-fair], as the ascent of the training finds it;
    the adaptive one goes on to a smaller tolerance, as after each training by this library."""
    costs, _ = _solve(models, ASCENTS[ascent].careful())
    return costs.mean(1).sqrt()


def _solve(models: Sequence[nn.Sequential], maximizer: Maximizer) -> tuple[Tensor, Tensor]:
    """Return (networks, n) transport costs and values of f on the training data."""
    train = load("rings").train
    together = SideBySide(models, 2)
    inputs, targets = together.for_all([train] * len(models))
    solution = WRM(TOY_GAMMA, maximizer=maximizer).solve(together, inputs, targets)
    shape = (len(models), len(train))
    return solution.transport_cost.reshape(shape), solution.value.reshape(shape)


def _levels(models: Sequence[nn.Sequential], *, precise: bool) -> dict[str, Any]:
    """Return ρ̂_n and the mean of φ of each network, by several ascents on the *same* networks.

    ``short``: the share of points that the 15 steps move by less than nine tenths of what the precise ascent
    does, and the part of the difference of the two ρ̂ that these points make.
    """
    ascents: dict[str, Maximizer] = {"paper": ASCENTS["paper"], "adaptive": ASCENTS["adaptive"].careful()}
    solved = {name: _solve(models, ascent) for name, ascent in ascents.items()}
    if precise:
        solved["precise"] = _solve(models, _PRECISE)
    levels: dict[str, Any] = {
        name: {"rho_hat": costs.double().mean(1).tolist(), "phi": values.double().mean(1).tolist()}
        for name, (costs, values) in solved.items()
    }
    if precise:
        missing = solved["precise"][0] - solved["paper"][0]
        short = solved["paper"][0] < 0.81 * solved["precise"][0]
        levels["short"] = {
            "share": short.double().mean(1).tolist(),
            "part": (torch.where(short, missing, 0.0).sum(1) / missing.sum(1)).tolist(),
        }
    return levels


def _concave(model: nn.Module) -> float:
    """Return the share of training points at which f is strongly concave."""
    train = load("rings").train
    share = concave_share(ModelLoss(model), train.inputs, train.targets, gamma=TOY_GAMMA)
    return float(share.fraction)


def shown_seed(workspace: Workspace, settings: Mapping[str, Any]) -> int:
    """Return the seed that pictures show: the one in the middle, by the asymmetry of WRM with the paper's
    ascent and a step that falls to 0, of the networks that have learnt; 0 if none has."""
    usual = {**settings, "ascent": "paper", "schedule": "cosine"}
    about = [_boundary(model) for model in networks(workspace, usual, "wrm")]
    learnt = sorted((entry["asymmetry"], seed) for seed, entry in enumerate(about) if has_learnt(entry))
    return learnt[(len(learnt) - 1) // 2][1] if learnt else 0


def has_learnt(network: Mapping[str, Any]) -> bool:
    """Return whether a network has a closed boundary and a small test error; no other is judged."""
    return bool(network["open_rays"] == 0 and network["test_error"] < NOT_LEARNT)


def _boundary(model: nn.Module) -> dict[str, Any]:
    radii, test = boundary_radii(model), load("rings").test
    with torch.no_grad():
        wrong = model(test.inputs).argmax(1) != test.targets
    return {
        "test_error": wrong.double().mean().item(),
        "mean_radius": radii.mean().item(),
        "asymmetry": (radii.std() / radii.mean()).item(),
        "open_rays": int((radii >= FARTHEST).sum()),
    }


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


def measure_certificate(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure fig:loss-bound (a) for the shown seed of WRM with ELUs: the paper's curves, and our bracket.

    Both curves come from a precise ascent: the 15 steps of the training would leave both too low.
    """
    seed = shown_seed(workspace, settings)
    model, data = networks(workspace, settings, "wrm")[seed], load("rings")
    loss, test = ModelLoss(model), data.test[torch.arange(settings["test"])]
    solved = WRM(TOY_GAMMA, maximizer=_PRECISE).solve(loss, data.train.inputs, data.train.targets)
    adversary = []
    for gamma in settings["gammas"]:
        moved = WRM(gamma, maximizer=_PRECISE).solve(loss, test.inputs, test.targets)
        level = moved.transport_cost.double().mean().item()
        value = moved.value.double().mean().item()
        adversary.append({"gamma": gamma, "rho": level, "worst_case": value + gamma * level})
    proven = certify(model, test, rho=settings["rhos"], progress=False)
    return {
        "seed": seed,
        "rho_hat": solved.transport_cost.double().mean().item(),
        "intercept": solved.value.double().mean().item(),
        "adversary": adversary,
        "bracket": [
            {"rho": entry.rho, "at_least": entry.loss_low, "at_most": entry.loss_high}
            for entry in (proven.bracket(rho) for rho in settings["rhos"])
        ],
    }
