"""The networks of the synthetic rings, where their boundaries are, and the certificate of one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from certus.bounds import input_smoothness
from certus.certificates import certify
from certus.inner import WRM, concave_share, default_maximizer
from certus.runs.loaded_run import TrainedRun
from certus.runs.settings import Settings
from studies.workshop import Workshop

TOY_GAMMA = 2.0
FARTHEST = 4.0
TOY_MODELS = {"relu": "toy-relu", "elu": "toy"}
METHOD_NAMES = {"erm": "ERM", "fgm": "FGM", "wrm": "WRM"}


def measure_boundaries(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Three networks of one activation and seed: where their boundaries are, and how often they err."""
    schedule = settings.get("schedule", "constant")
    networks = three_networks(
        workshop, settings["activation"], settings["seed"], settings["epochs"], schedule
    )
    found: dict[str, Any] = {"activation": settings["activation"], "schedule": schedule, "methods": {}}
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


def toy_settings(activation: str, seed: int, epochs: int, schedule: str, **method: Any) -> Settings:
    """How every network of the rings is trained; the paper gives no optimizer, step or batch."""
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
    workshop: Workshop, activation: str, seed: int, epochs: int, schedule: str = "constant"
) -> dict[str, TrainedRun]:
    """ERM, FGM and WRM; FGM moves by ε with ε² = ρ̂_n(θ_WRM) [eqn:fgm-fair]."""

    def train(**method: Any) -> TrainedRun:
        return workshop.network(toy_settings(activation, seed, epochs, schedule, **method))

    wrm = train(method="wrm", gamma=TOY_GAMMA)
    assert wrm.rho_hat is not None
    fgm = train(method="fgm", norm="2", epsilon=math.sqrt(wrm.rho_hat))
    return {"erm": train(method="erm"), "fgm": fgm, "wrm": wrm}


def boundary_radii(model: nn.Module, rays: int = 360) -> Tensor:
    """(rays,) the distance from the centre at which the predicted class first changes; at most
    ``FARTHEST``."""
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


def measure_toy_certificate(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """fig:loss-bound (a): the paper's two curves, and the bracket of this library, for WRM with ELUs."""
    trained = three_networks(workshop, "elu", settings["seed"], settings["epochs"])["wrm"]
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
        "bracket": [{"rho": one.rho, "at_least": one.loss_low, "at_most": one.loss_high} for one in curve],
    }
