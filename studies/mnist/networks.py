"""The networks of the paper's MNIST results: how each is trained, once for all results that need it.

The network is the paper's; Adam with a step of 0.001, batches of 256 and pixels in [0, 1] are its authors'.
Nothing is clipped to the box in training. The loss is plain cross-entropy, as the paper is written; its
authors' code smooths the labels by 0.1, which lets an attack gain by making a network too sure. A *recipe* is
all that a training depends on, in JSON types, so that the parts of a study can name their networks:

    {"method": "wrm", "gamma": 0.368588, "epochs": 10, "seed": 0, "images": null}
    {"method": "pgm", "norm": "2", "as_far_as": {the recipe of a wrm}, "epochs": 4, "seed": 0, "images": null}

``as_far_as`` sets the budget of a method to what that WRM reaches on its training data: ε = √ρ̂ in the norm of
its cost (eqn:fgm-fair), and the mean length E‖T − Z‖ in another one (eq:inf-from-2). A WRM may have it too:
its ρ is then that ε squared. ``images`` makes a quick look: so many of the 60,000 images, of which a fifth
are held out, and a fifth as many test images.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certus._names import NORMS
from certus.attacks.evaluation import fair_epsilon
from certus.data import Samples, Subset, choose_rows
from certus.datasets import load
from certus.runs.loaded_run import LoadedRun, recorded_rho_hat
from certus.runs.settings import Settings
from certus.storage.write import write_atomically
from studies.page import training_settings
from studies.study import Part, Scale
from studies.workspace import Workspace

MEAN_LENGTH = 9.2147
"""C₂ = E‖X‖₂ of the training images; the paper's 9.21."""

SMALL_BUDGET, LARGE_BUDGET = 0.04 * MEAN_LENGTH, 0.02 * MEAN_LENGTH
"""γ of the paper's two levels."""

MNIST_METHODS = {"erm": "ERM", "fgm": "FGM", "ifgm": "IFGM", "pgm": "PGM", "wrm": "WRM"}
NetworkRecipe = dict[str, Any]
_QUICK_IMAGES, _MEASURED_ON = 1000, 5000
_SLOW = ("ifgm", "pgm")  # fifteen gradients for each step


def recipe(scale: Scale, method: str, epochs: int, slow_epochs: int = 0, **options: Any) -> NetworkRecipe:
    """Return the recipe of a network at a scale.

    Args:
        slow_epochs: those of ifgm and pgm, where they are fewer.
        options: of ``Settings``, and ``as_far_as``.
    """
    chosen = slow_epochs if method in _SLOW and slow_epochs else epochs
    common = {"method": method, "epochs": chosen, "seed": 0, "images": None}
    if scale is Scale.QUICK:
        common |= {"epochs": 1 if method in _SLOW else 2, "images": _QUICK_IMAGES}
    return {**common, **options}


def mnist_network(workspace: Workspace, how: Mapping[str, Any]) -> LoadedRun:
    """Load or train the network of a recipe, and those that its budget comes from."""
    options = dict(how)
    images, like = options.pop("images"), options.pop("as_far_as", None)
    if like is not None and how["method"] == "wrm":
        options["rho"] = reach(workspace, like, options.pop("norm")) ** 2
    elif like is not None:
        options["epsilon"] = reach(workspace, like, options["norm"])
    data = "mnist" if images is None else _few_images(workspace, images)
    return workspace.network(Settings(**_common(data, images) | options))


def _common(data: str, images: int | None) -> dict[str, Any]:
    return {"data": data, "model": "mnist-cnn", "batch_size": 256 if images is None else 64, "clip": False}


def mnist_training(scale: Scale) -> dict[str, Any]:
    """Return the settings that networks share unless their recipe says otherwise."""
    common = _common("mnist", None if scale is Scale.FULL else _QUICK_IMAGES)
    return training_settings(Settings(method="erm", **common))


def reach(workspace: Workspace, wrm: Mapping[str, Any], norm: str) -> float:
    """Return ε, the distance that a WRM moves its training data in a norm; see the module's docstring."""
    trained = mnist_network(workspace, wrm)
    rho_hat = recorded_rho_hat(trained.run, NORMS[norm])
    if rho_hat is not None:
        return math.sqrt(rho_hat)
    data = random_images(trained, "train", _MEASURED_ON)
    about = {"reach of": dict(wrm), "norm": norm, "samples": len(data)}
    return workspace.cached_number(about, lambda: fair_epsilon(trained.wrm, trained.loss, data, NORMS[norm]))


def random_images(trained: LoadedRun, part: str, count: int | None) -> Samples:
    """Return ``count`` images of "train" or "test", chosen at random by the seed 0; all if None."""
    data = trained.data.train if part == "train" else trained.data.test
    return Subset.of(data, f"mnist@{part}", count, seed=0, stratify=False).data


def training_part(name: str, how: NetworkRecipe, effort: float) -> Part:
    """Return a part that trains one network and records its errors and budgets.

    Args:
        effort: of all images; a quick look has few of them, and a fifth of the epochs.
    """
    share = 1.0 if how["images"] is None else how["images"] / 60_000 / 5
    return Part(name, {"network": how}, _measure_training, share * effort)


def _measure_training(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = mnist_network(workspace, settings["network"])
    assert trained.run.result is not None
    return {
        "method": trained.settings.method,
        "seed": trained.settings.seed,
        "epochs": trained.settings.epochs,
        "test_error": 1 - trained.run.result["test"]["accuracy"],
        "test_images": len(trained.data.test),
        "gamma": trained.gamma,
        "rho_hat": trained.rho_hat,
        "epsilon": trained.settings.epsilon,
    }


def _few_images(workspace: Workspace, count: int) -> str:
    """Write a file with ``count`` random images of MNIST, and a fifth as many to test on; return its name."""
    path = Path(workspace.folder).resolve() / "data" / f"mnist-{count}.npz"
    if not path.exists():
        whole, content = load("mnist"), io.BytesIO()
        arrays: dict[str, Any] = {}
        for prefix, data, many in (("", whole.train, count), ("test_", whole.test, count // 5)):
            chosen = data[choose_rows(len(data), many, 0, data.targets)]
            arrays[f"{prefix}inputs"] = (chosen.inputs[:, 0] * 255).round().to(torch.uint8).numpy()
            arrays[f"{prefix}targets"] = chosen.targets.numpy()
        np.savez_compressed(content, **arrays)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.getvalue())
    return f"npz:{path}"
