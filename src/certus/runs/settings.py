"""What a run is asked to do, in JSON types, and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import SGD, Adam

from certus.costs import SquaredLp, SquaredSup
from certus.errors import ArgumentError, require, require_count
from certus.surrogate import MonotoneAscent

ATTACKS = ("fgm", "ifgm", "pgm")
METHODS = ("wrm", "erm", *ATTACKS)
NORMS = {"1": 1.0, "2": 2.0, "inf": math.inf}
COSTS = {"l1": SquaredLp(1.0), "linf": SquaredSup()}
TAKEN = {  # option → the methods that take it; to others it means nothing
    "gamma": ("wrm",),
    "rho": ("wrm",),
    "cost": ("wrm",),
    "tolerance": ("wrm",),
    "norm": ATTACKS,
    "epsilon": ATTACKS,
    "steps": ("ifgm", "pgm"),
    "step_size": ("ifgm", "pgm"),
    "clip": ("wrm", *ATTACKS),
}
OPTIMIZERS = {"adam": Adam, "sgd": SGD}


@dataclass(frozen=True)
class Settings:
    """What the command line, or a script, asks for; JSON types only.

    Attributes:
        gamma, rho: exactly one of them for wrm, neither for the others.
        cost: "natural" (squared L2, weighted for tabular data), "linf" or "l1"; for wrm.
        norm, epsilon: of the ball in which fgm, ifgm and pgm move the inputs.
        steps, step_size: of ifgm and pgm; 2.5·epsilon/steps when None.
        clip: whether inputs move only in the set that the data live in, such as pixels between 0 and 1.
        schedule: "constant" or "cosine" (down to 0 over all epochs).
        certified: keep sγ above a proven bound on the curvature; ``gamma`` is then allowed for every method.
        margin: what a true class must lead by, in the training loss of a classifier; 0 for cross-entropy.
        temperature: of that loss: below 1 it looks at samples near the decision more than at others.
        shift: pixels by which training images are shifted at random; warp: how much they are turned,
            stretched and slanted; then shifts are not by whole pixels only.
        tolerance: of the inner problems. The effect of an inexact maximiser is fixed (thm:convergence).
    """

    data: str
    model: str
    method: str = "wrm"
    gamma: float | None = None
    rho: float | None = None
    cost: str = "natural"
    norm: str | None = None
    epsilon: float | None = None
    steps: int = 15
    step_size: float | None = None
    clip: bool = True
    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    tolerance: float = MonotoneAscent.tolerance
    seed: int = 0
    target: str | None = None
    standardize: bool = True
    certified: bool = False
    margin: float = 0.0
    temperature: float = 1.0
    shift: int = 0
    warp: float = 0.0

    def __post_init__(self) -> None:
        for name, legal in (
            ("method", METHODS),
            ("optimizer", tuple(OPTIMIZERS)),
            ("schedule", ("constant", "cosine")),
            ("cost", ("natural", *COSTS)),
            ("norm", (None, *NORMS)),
        ):
            value = getattr(self, name)
            require(value in legal, name, f"be one of {', '.join(filter(None, legal))}", repr(value))
        for name in ("epochs", "batch_size", "steps"):
            require(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))
        rate = self.learning_rate
        require(0 < rate < math.inf, "learning_rate", "be positive and finite", rate)
        decay = self.weight_decay
        require(0 <= decay < math.inf, "weight_decay", "be finite and not negative", decay)
        require(self.batch_size < 2**31, "batch_size", "be less than 2³¹", self.batch_size)
        require(0 <= self.label_smoothing < 1, "label_smoothing", "lie in [0, 1)", self.label_smoothing)
        require(0 <= self.seed < 2**32, "seed", "lie between 0 and 2³² − 1", self.seed)
        for name in ("gamma", "rho", "norm", "epsilon", "step_size"):  # None where they are left out
            value = getattr(self, name)
            taken = self.method in TAKEN[name] or (self.certified and name == "gamma")
            if value is not None and not taken:
                raise ArgumentError(f"`{name}` must be left out for {self.method}; got {value}.")
        given = [name for name in ("gamma", "rho") if getattr(self, name) is not None]
        if self.method in ATTACKS:
            budget = self.epsilon
            if budget is None or self.norm is None:
                raise ArgumentError(
                    f"Give `epsilon` and `norm` for {self.method}; got epsilon={budget} and norm={self.norm}."
                )
            require(0 <= budget < math.inf, "epsilon", "be finite and not negative", budget)
        if self.step_size is not None:
            require(0 < self.step_size < math.inf, "step_size", "be positive and finite", self.step_size)
        if self.method != "wrm" and self.cost != "natural":
            raise ArgumentError(f"`cost` must be left out for {self.method}; got {self.cost!r}.")
        require(0 <= self.margin < math.inf, "margin", "be finite and not negative", self.margin)
        valid = 1e-3 <= self.temperature <= 1e3
        require(valid, "temperature", "lie between 0.001 and 1000", self.temperature)
        if self.certified and self.rho is not None and self.temperature != 1:
            raise ArgumentError(f"`temperature` must be 1 where γ follows ρ; got {self.temperature}.")
        require_count("shift", self.shift, least=0)
        require(0 <= self.warp < 0.5, "warp", "be at least 0 and below 0.5", self.warp)
        if (self.method == "wrm" or self.certified) and len(given) != 1:
            raise ArgumentError(
                f"Give either `gamma` or `rho` for {self.method}; got gamma={self.gamma} and rho={self.rho}."
            )
        for name in given:
            value = getattr(self, name)
            require(0 < value < math.inf, name, "be positive and finite", value)
            require(1e-30 < value < 1e30, name, "lie between 1e-30 and 1e30", value)
