"""Completed runs opened for use, and checks that samples are held out.

A confidence requires samples that the network was not fitted to. The splits of a run are distinguished by
their recorded row numbers. Other data are compared row by row, by a hash of the inputs regardless of
targets: one equal row is refused. In tables with few categories equal rows can be coincidences; use the
splits of the run itself there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from certus.costs import Cost
from certus.data import Samples
from certus.datasets import SplitDataset
from certus.domains import Domain
from certus.errors import ArgumentError, require
from certus.inner import WRM, default_maximizer
from certus.losses import Criterion, CrossEntropy, MissProbability, ModelLoss, SmoothMargin
from certus.runs.directory import RunDirectory
from certus.runs.factory import load_data, load_same_data, read_settings, rebuild_model
from certus.runs.serialization import deserialize
from certus.runs.settings import Settings
from certus.storage.files import RunError


def row_hashes(data: Samples) -> list[bytes]:
    """Return the SHA-256 of every input in double precision."""
    rows = (data.inputs.detach().cpu().double().flatten(1) + 0.0).numpy()  # −0 becomes 0
    return [hashlib.sha256(row.tobytes()).digest() for row in rows]


def named_split(data: SplitDataset, name: str) -> Samples:
    """Return a split or a later sample of a data set by name; "all" is train, calibration and test."""
    splits = {"train": data.train, "calibration": data.calibration, "test": data.test, **data.later}
    require(name in splits or name == "all", "split", f"be one of {', '.join(splits)}, all", repr(name))
    if name != "all":
        return splits[name]
    parts = (data.train, data.calibration, data.test)
    inputs, targets = (torch.cat([getattr(part, side) for part in parts]) for side in ("inputs", "targets"))
    return Samples(inputs, targets, encoding=data.train.encoding)


def check_holdout(trained: LoadedRun, data: Samples | str, *, raw: bool = False) -> None:
    """Raise unless the run was trained on none of these samples: a split of its own data by name, or others,
    ``raw`` if they have not been standardised."""
    if not isinstance(data, str):
        settings = replace(trained.settings, standardize=trained.settings.standardize and not raw)
        seen = set(row_hashes(load_data(settings).train))
        count = sum(row in seen for row in row_hashes(data))
        if count:
            raise ArgumentError(
                f"`confidence` needs data that the run has not trained on; {count} of these {len(data)} "
                "rows are among its training data."
            )
        return
    if data in ("train", "all"):
        raise ArgumentError(
            "`confidence` needs data that the run was not trained on, such as the split test or calibration; "
            f"got the split {data}."
        )
    rows = trained.run.rows
    if data in rows and bool(torch.isin(rows[data], rows["train"]).any()):
        raise RunError(
            f"{trained.run.path} was trained on rows of its split {data}: certify another split or new data."
        )


@dataclass(frozen=True)
class LoadedRun:
    """A completed run: network, loss, data, cost and domain.

    Attributes:
        loss: the trained network, in eval mode, with the criterion it was trained with.
        cost, domain: c and Z of its training.
        gamma, rho_hat: the penalty that a WRM run ended with, and how far it moves its training data; None
            for other methods.
    """

    run: RunDirectory
    settings: Settings
    data: SplitDataset
    loss: ModelLoss
    cost: Cost
    domain: Domain
    gamma: float | None
    rho_hat: float | None

    @property
    def model(self) -> nn.Module:
        """The trained network, in eval mode."""
        return self.loss.model

    @property
    def certified_criterion(self) -> Criterion:
        """The criterion without label smoothing and margins, which serve training alone."""
        plain = isinstance(self.loss.criterion, CrossEntropy | SmoothMargin | MissProbability)
        return CrossEntropy() if plain else self.loss.criterion

    @property
    def wrm(self) -> WRM:
        """WRM at the final γ of the run, with an accurate maximizer; it moves inputs alone."""
        if self.gamma is None:
            raise ArgumentError(
                f"`{self.run.path}` must be a run of wrm; it was trained by {self.settings.method}."
            )
        maximizer = default_maximizer(self.cost, self.domain, tolerance=1e-4, max_gradients=32)
        return WRM(self.gamma, cost=self.cost, domain=self.domain, maximizer=maximizer)


def open_run(run: RunDirectory, *, model: str | None = None) -> LoadedRun:
    """Open a completed run, checked against its data; ``model`` is its own ``FILE.py:FACTORY``, which is
    executed, if it has one."""
    (gamma, rho_hat), settings, record = _final_penalty(run), read_settings(run), run.record
    data = load_same_data(run, settings)
    network = rebuild_model(run, settings, data, model)
    try:
        network.load_state_dict(run.weights())
    except (TypeError, ValueError, RuntimeError) as reason:
        line = " ".join(str(reason).split())
        raise RunError(f"{run.path} is corrupt: its result does not fit: {line}.") from None
    loss = ModelLoss(network.eval(), deserialize(record.criterion))
    cost, domain = deserialize(record.cost), deserialize(record.domain)
    return LoadedRun(run, settings, data, loss, cost, domain, gamma, rho_hat)


def load_run(path: str | Path, *, model: str | None = None, data: str | None = None) -> LoadedRun:
    """Load a completed run with its network, data and settings. This is ``certus.load_run``.

    Args:
        model: the run's own ``FILE.py:FACTORY``, if it has one: it is executed.
        data: the present place of its data, such as "csv:FILE", if they were moved.
    """
    return open_run(RunDirectory.open(Path(path), data=data), model=model)


def recorded_rho_hat(run: RunDirectory, norm: float) -> float | None:
    """Return ρ̂ of a completed WRM run whose cost is the square of this norm; None for others, and where
    labels have moved too, at a price that is no distance."""
    _, rho_hat = _final_penalty(run)
    if read_settings(run).label_cost is not None:
        return None
    ball = deserialize(run.record.cost).attack_ball(deserialize(run.record.domain))
    return rho_hat if ball.own and ball.p == norm else None


def training_rho(run: RunDirectory) -> tuple[float, str] | None:
    """Return the ρ of a completed run and its source: the requested ρ, else the measured ρ̂; None for
    methods without one."""
    measured, requested = _final_penalty(run)[1], read_settings(run).rho
    if requested is not None:
        return requested, "the rho that the run was trained for"
    return None if measured is None else (measured, "rho_hat of the run, measured on its training data")


def _final_penalty(run: RunDirectory) -> tuple[float | None, float | None]:
    """Return γ and ρ̂ of a completed run; None for methods other than WRM."""
    if (result := run.result) is None:
        raise RunError(f"{run.path} is incomplete; `certus resume {run.path}` continues it.")
    robustness = result["robustness"]
    if robustness is None:
        return None, None
    return float(robustness["gamma"]), float(robustness["rho_hat"])
