"""Settings of a run, as JSON types with validation.

Weight decay as it is typed: one number for all weights, or LAYER=VALUE for each layer that is named.

What moving some columns of a table costs, as it is typed: ``town=3,age=inf``.

What a run is asked to do, in JSON types, and checked.

The command line takes its options from here: nothing slow is loaded to know them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from certus._defaults import ATTACK_STEPS, CERTIFIED, PLAIN, TOLERANCE
from certus._names import GRADIENT_ATTACKS, NORMS, PAPER_NAMES
from certus.errors import ArgumentError, require, require_count, require_number
from certus.storage.files import check_types
from certus.table_options import TableOptions, listed_names

_RULE = "be one number, or LAYER=VALUE for each layer"


def typed_decay(texts: Sequence[str]) -> float | str:
    """What was typed, once or several times, as a setting.

    >>> typed_decay(["0.1"]), typed_decay(["0=0.1", "2=0.01"])
    (0.1, '0=0.1,2=0.01')
    """
    try:
        (number,) = (float(text) for text in texts)
    except ValueError:  # several, or no number
        return ",".join(texts)
    return number


def decay_of_layers(setting: float | str) -> float | dict[str, float]:
    """A setting as ``fit`` takes it, checked.

    >>> decay_of_layers("0=0.1,features.3=0.01")
    {'0': 0.1, 'features.3': 0.01}
    """
    if not isinstance(setting, str):
        return require_number("weight_decay", setting, zero=True)
    amounts: dict[str, float] = {}
    for entry in setting.split(","):
        layer, equals, value = entry.strip().partition("=")
        require(bool(layer and equals), "weight_decay", _RULE, repr(setting))
        require(layer not in amounts, "weight_decay", "name each layer once", repr(setting))
        try:
            amounts[layer] = float(value)
        except ValueError:
            require(False, "weight_decay", _RULE, repr(setting))
        require_number("weight_decay", amounts[layer], zero=True)
    return amounts


def column_prices(text: str) -> dict[str, float]:
    """Column → price, inf for one that is frozen.

    >>> column_prices("town=3, age=inf")
    {'town': 3.0, 'age': inf}
    """
    found: dict[str, float] = {}
    for part in listed_names(text):
        name, equals, number = part.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            equals, price = "", 0.0
        rule = "be COLUMN=PRICE, several separated by commas"
        require(equals != "" and name != "", "price", rule, repr(text))
        require(price > 0, "price", "be positive, inf to freeze", repr(part))
        require(name not in found, "price", "name each column once", repr(text))
        found[name] = price
    return found


METHODS = ("wrm", "erm", *GRADIENT_ATTACKS)
COSTS = ("natural", "l1", "linf")
METHOD_OPTIONS = {  # option → the methods that take it; to others it means nothing
    "gamma": ("wrm",),
    "rho": ("wrm",),
    "cost": ("wrm",),
    "tolerance": ("wrm",),
    "ascent": ("wrm",),
    "norm": GRADIENT_ATTACKS,
    "epsilon": GRADIENT_ATTACKS,
    "steps": ("bim", "pgd"),
    "step_size": ("bim", "pgd"),
    "clip": ("wrm", *GRADIENT_ATTACKS),
}
LOSSES = ("cross-entropy", "bounded")
OPTIMIZERS = ("adam", "sgd")
FLAGS = {"learning_rate": "--lr", "certified": "--certified"}
"""Setting → its option, where that is not its name with dashes."""


@dataclass(frozen=True)
class Settings:
    """What the command line, or a script, asks for; JSON types only, each with a word of help.

    Exactly one of gamma and rho for wrm, neither for the others; a certified run may have a gamma with every
    method. The effect of the tolerance, of an inexact maximiser, is fixed (thm:convergence).
    ``folder`` is where a relative path of the data starts; empty for where the process is. Of a run whose
    data were moved it is the place where they are, such as "csv:/data/people.csv".
    """

    data: str
    model: str
    method: Annotated[str, "wrm (robust), erm (ordinary), or fgsm, bim, pgd (adversarial)."] = "wrm"
    gamma: Annotated[float | None, "Penalty on moving the data, of wrm or with --certified."] = None
    rho: Annotated[float | None, "Mean transport cost to be robust to; gamma follows it."] = None
    certified: Annotated[bool, "Keep gamma above a proven bound on the curvature, at every step."] = False
    cost: Annotated[str, "What wrm pays for moving: natural (squared L2), linf or l1."] = "natural"
    price: Annotated[str, "Of moving columns of a table: town=3,age=inf. Others cost 1; inf freezes."] = ""
    norm: Annotated[str | None, "Of fgsm, bim and pgd: 1, 2 or inf (default)."] = None
    epsilon: Annotated[
        float | None, "How far fgsm, bim and pgd move; from:RUN is as far as that run's wrm."
    ] = None
    steps: Annotated[int, "Of bim, pgd and --ascent paper; 15 by default."] = ATTACK_STEPS
    step_size: Annotated[float | None, "Of bim and pgd; 2.5 epsilon / steps by default."] = None
    clip: Annotated[bool, "Keep inputs that a method moves where the data live, e.g. in [0, 1]."] = True
    epochs: Annotated[int, "Passes over the training data; 10 by default, more for small data."] = (
        PLAIN.epochs
    )
    batch_size: Annotated[int, "Samples per step, over all processes."] = PLAIN.batch_size
    optimizer: Annotated[str, "adam or sgd."] = "adam"
    learning_rate: Annotated[float, "Step size; 0.004 for mlp:…, 0.01 with --certified, else 0.001."] = (
        PLAIN.learning_rate
    )
    schedule: Annotated[str, "constant (the default), or cosine down to 0 (with --certified)."] = (
        PLAIN.schedule
    )
    weight_decay: Annotated[
        float | str, "L2 penalty λ/2·|w|² on weights: λ for all, or LAYER=λ, for several layers."
    ] = 0.0
    class_weights: Annotated[str, "equal, or balanced: every class counts alike in training."] = "equal"
    label_smoothing: Annotated[float, "In the loss of a classifier, inside and outside."] = 0.0
    margin: Annotated[float, "By how much, in the training loss, the true class must lead."] = 0.0
    temperature: Annotated[float, "Of the training loss: below 1, clean accuracy gains on robustness."] = 1.0
    loss: Annotated[str, "cross-entropy, or bounded: 1 less the true class's probability."] = "cross-entropy"
    noise: Annotated[float, "Sigma of Gaussian noise on the inputs, wherever the loss is looked at."] = 0.0
    jitter: Annotated[int, "Pixels by which training images are moved at random."] = 0
    warp: Annotated[float, "How much they are turned, stretched and slanted, such as 0.1."] = 0.0
    ascent: Annotated[
        str, "How wrm climbs: adaptive, until the tolerance; or paper, --steps steps that fall as 1/√t."
    ] = "adaptive"
    tolerance: Annotated[float, "How well wrm solves each inner problem, in units of the loss."] = TOLERANCE
    seed: Annotated[int, "Decides split, weights and batches."] = 0
    target: Annotated[str | None, "Target column of a csv: or parquet: file; the last by default."] = None
    drop: Annotated[str, "Columns of a table to leave out, separated by commas."] = ""
    categorical: Annotated[str, "Columns of numbers that are categories, separated by commas."] = ""
    missing: Annotated[str, "Gaps get the training median and a column that says so; or refuse."] = "median"
    encoding: Annotated[str, "Of a csv: file, such as latin-1."] = "utf-8"
    separator: Annotated[str, "Of a csv: file, such as ;."] = ","
    split: Annotated[
        str | None, "random (the default), stratified by label, or by --split-by: group or time."
    ] = None
    split_by: Annotated[
        str | None, "Column of a table: dates split by time; equal values of others stay together."
    ] = None
    standardize: Annotated[bool, "Bring tabular features to mean 0, variance 1."] = True
    folder: str = ""

    @property
    def table(self) -> TableOptions:
        """How a table is read."""
        return TableOptions(**{field.name: getattr(self, field.name) for field in fields(TableOptions)})

    @classmethod
    def chosen(cls, **given: Any) -> Settings:
        """Settings from what was given; None is not given. Some defaults follow from the rest."""
        known = {name: value for name, value in given.items() if value is not None}
        known["method"] = PAPER_NAMES.get(known.get("method", "wrm"), known.get("method", "wrm"))
        defaults: dict[str, Any] = {}
        if known.get("certified"):
            defaults |= {"learning_rate": CERTIFIED.learning_rate, "schedule": CERTIFIED.schedule}
        if known.get("method") in GRADIENT_ATTACKS:
            defaults["norm"] = "inf"
        return cls(**defaults | known)

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "method", PAPER_NAMES.get(self.method, self.method))
        self.table  # noqa: B018 (checks its own)
        for name, legal in (
            ("method", METHODS),
            ("optimizer", OPTIMIZERS),
            ("schedule", ("constant", "cosine")),
            ("cost", COSTS),
            ("ascent", ("adaptive", "paper")),
            ("loss", LOSSES),
            ("class_weights", ("equal", "balanced")),
            ("norm", (None, *NORMS)),
        ):
            value = getattr(self, name)
            require(value in legal, name, f"be one of {', '.join(filter(None, legal))}", repr(value))
        for name in ("epochs", "batch_size", "steps"):
            require(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))
        require_number("learning_rate", self.learning_rate)
        decay_of_layers(self.weight_decay)
        accuracy = self.tolerance
        require(0 <= accuracy < math.inf, "tolerance", "be finite and not negative", accuracy)
        require(self.batch_size < 2**31, "batch_size", "be less than 2³¹", self.batch_size)
        require(0 <= self.label_smoothing < 1, "label_smoothing", "lie in [0, 1)", self.label_smoothing)
        require(0 <= self.seed < 2**32, "seed", "lie between 0 and 2³² − 1", self.seed)
        for name in ("gamma", "rho", "norm", "epsilon", "step_size"):  # None where they are left out
            value = getattr(self, name)
            taken = self.method in METHOD_OPTIONS[name] or (self.certified and name == "gamma")
            if value is not None and not taken:
                raise ArgumentError(f"`{name}` must be left out for {self.method}; got {value}.")
        given = [name for name in ("gamma", "rho") if getattr(self, name) is not None]
        if self.method in GRADIENT_ATTACKS:
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
        column_prices(self.price)  # checks itself
        require(
            self.price == "" or self.cost == "natural",
            "price",
            f"be left out with --cost {self.cost}",
            self.price,
        )
        require_number("noise", self.noise, zero=True)
        plain = self.noise == 0 or self.cost == "natural"
        require(plain, "cost", "be natural with noise, which is Gaussian", repr(self.cost))
        rule = "be cross-entropy in certified training, which is about that"
        require(not self.certified or self.loss == "cross-entropy", "loss", rule, repr(self.loss))
        require_number("margin", self.margin, zero=True)
        valid = 1e-3 <= self.temperature <= 1e3
        require(valid, "temperature", "lie between 0.001 and 1000", self.temperature)
        if self.certified and self.rho is not None and self.temperature != 1:
            raise ArgumentError(f"`temperature` must be 1 where γ follows ρ; got {self.temperature}.")
        require_count("jitter", self.jitter, least=0)
        require(0 <= self.warp < 0.5, "warp", "be at least 0 and below 0.5", self.warp)
        if (self.method == "wrm" or self.certified) and len(given) != 1:
            got = f"both, {self.gamma} and {self.rho}" if given else "neither"
            raise ArgumentError(f"Give either `gamma` or `rho` for {self.method}; got {got}.")
        for name in given:
            value = getattr(self, name)
            require(0 < value < math.inf, name, "be positive and finite", value)
            require(1e-30 < value < 1e30, name, "lie between 1e-30 and 1e30", value)
