"""Settings of a run, as JSON types with validation.

``certus train`` takes its options from here, so nothing slow is imported.
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
from certus.table_options import MISSING_WAYS, SPLIT_WAYS, TableOptions, listed_names

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


def column_costs(text: str) -> dict[str, float]:
    """Return the cost factors by column, inf for one that is fixed.

    >>> column_costs("town=3, age=inf")
    {'town': 3.0, 'age': inf}
    """
    costs: dict[str, float] = {}
    for part in listed_names(text):
        name, equals, number = part.rpartition("=")
        try:
            cost = float(number)
        except ValueError:
            equals, cost = "", 0.0
        rule = "be COLUMN=COST, several separated by commas"
        require(equals != "" and name != "", "feature_cost", rule, repr(text))
        require(cost > 0, "feature_cost", "be positive, inf to freeze", repr(part))
        require(name not in costs, "feature_cost", "name each column once", repr(text))
        costs[name] = cost
    return costs


METHODS = ("wrm", "erm", *GRADIENT_ATTACKS)
COSTS = ("natural", "l1", "linf")
METHOD_OPTIONS = {  # option → the methods that take it; to others it means nothing
    "gamma": ("wrm",),
    "rho": ("wrm",),
    "cost": ("wrm",),
    "tolerance": ("wrm",),
    "maximizer": ("wrm",),
    "norm": GRADIENT_ATTACKS,
    "epsilon": GRADIENT_ATTACKS,
    "steps": ("bim", "pgd"),
    "step_size": ("bim", "pgd"),
    "clip": ("wrm", *GRADIENT_ATTACKS),
}
LOSSES = ("cross-entropy", "bounded")
OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("constant", "cosine")
MAXIMIZERS = ("adaptive", "paper")
CLASS_WEIGHTS = ("equal", "balanced")
FLAGS = {"learning_rate": "--lr"}
"""Setting → its option, where that is not its name with dashes."""

DATA, MODEL, METHOD, OPTIMISATION, OUTPUT = PANELS = (
    "Data",
    "Model and loss",
    "Method",
    "Optimisation",
    "Output",
)
"""Panels of ``certus train --help``."""


@dataclass(frozen=True)
class CommandOption:
    """Description of a field as an option of a command.

    Attributes:
        help: a sentence; panel: the heading that lists it.
        default: the default in words, where it depends on the data or on other options.
        flags: the names of the option, where they are not that of the field.
        choices: the values that it may have.
    """

    help: str
    panel: str
    default: str = ""
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Settings of a run, as the command line or a script gives them; JSON types only.

    Exactly one of gamma and rho for wrm, neither for the others; a certified run may have a gamma with every
    method. The effect of the tolerance, of an inexact maximiser, is fixed (thm:convergence).
    ``folder`` is where a relative path of the data starts; empty for where the process is. Of a run whose
    data were moved it is the place where they are, such as "csv:/data/people.csv".
    """

    data: str
    model: str
    method: Annotated[
        str,
        CommandOption(
            "Training method: distributionally robust (wrm), ordinary (erm) or adversarial (fgsm, bim, pgd).",
            METHOD,
            choices=METHODS,
        ),
    ] = "wrm"
    gamma: Annotated[
        float | None,
        CommandOption("Penalty on transport in the inner problem, for wrm and for --certified.", METHOD),
    ] = None
    rho: Annotated[
        float | None,
        CommandOption("Mean transport cost to be robust to; gamma is adjusted until it is reached.", METHOD),
    ] = None
    certified: Annotated[
        bool,
        CommandOption(
            "Project the weights after every step, so that the inner problem is provably concave at gamma.",
            METHOD,
        ),
    ] = False
    cost: Annotated[
        str,
        CommandOption(
            "Transport cost of wrm: natural (squared L2), or the squared sup-norm (linf) or L1 norm (l1).",
            METHOD,
            choices=COSTS,
        ),
    ] = "natural"
    feature_cost: Annotated[
        str,
        CommandOption(
            "Cost factors of columns of a table, such as town=3,age=inf. The factor of other columns is 1; "
            "inf keeps a column fixed.",
            METHOD,
        ),
    ] = ""
    norm: Annotated[
        str | None,
        CommandOption(
            "Norm of the perturbations of fgsm, bim and pgd.", METHOD, default="inf", choices=tuple(NORMS)
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        CommandOption(
            "Largest norm of a perturbation of fgsm, bim and pgd. from:RUN is the root mean square distance "
            "by which wrm moves the training data of that run.",
            METHOD,
        ),
    ] = None
    steps: Annotated[
        int,
        CommandOption(
            "Gradient steps of bim and pgd, and of wrm with --maximizer paper.", METHOD, default="15"
        ),
    ] = ATTACK_STEPS
    step_size: Annotated[
        float | None, CommandOption("Step size of bim and pgd.", METHOD, default="2.5 * epsilon / steps")
    ] = None
    clip: Annotated[
        bool, CommandOption("Keep perturbed inputs inside the domain of the data, such as [0, 1].", METHOD)
    ] = True
    epochs: Annotated[
        int,
        CommandOption("Passes over the training data.", OPTIMISATION, default="10, more for small data"),
    ] = PLAIN.epochs
    batch_size: Annotated[
        int, CommandOption("Samples per optimisation step, over all processes.", OPTIMISATION)
    ] = PLAIN.batch_size
    optimizer: Annotated[str, CommandOption("Optimisation algorithm.", OPTIMISATION, choices=OPTIMIZERS)] = (
        "adam"
    )
    learning_rate: Annotated[
        float,
        CommandOption(
            "Learning rate.", OPTIMISATION, default="0.01 with --certified, else 0.004 for mlp:…, else 0.001"
        ),
    ] = PLAIN.learning_rate
    schedule: Annotated[
        str,
        CommandOption(
            "Schedule of the learning rate: constant, or a cosine that falls to 0.",
            OPTIMISATION,
            default="constant; cosine with --certified",
            choices=SCHEDULES,
        ),
    ] = PLAIN.schedule
    weight_decay: Annotated[
        float | str,
        CommandOption(
            "L2 penalty (λ/2)·|w|² on the weights: λ for all layers, or LAYER=λ for one; may be repeated.",
            OPTIMISATION,
            default="0",
        ),
    ] = 0.0
    class_weights: Annotated[
        str,
        CommandOption(
            "Weights of the classes in the loss: equal, or balanced by their frequency.",
            MODEL,
            choices=CLASS_WEIGHTS,
        ),
    ] = "equal"
    label_smoothing: Annotated[
        float, CommandOption("Label smoothing of the loss, also in the inner problem.", MODEL)
    ] = 0.0
    margin: Annotated[
        float,
        CommandOption("Margin that the training loss demands between the true class and every other.", MODEL),
    ] = 0.0
    temperature: Annotated[
        float,
        CommandOption(
            "Temperature of the training loss. Values below 1 favour clean accuracy over robustness.", MODEL
        ),
    ] = 1.0
    loss: Annotated[
        str,
        CommandOption(
            "Loss of a classifier: cross-entropy, or bounded (1 minus the probability of the true class).",
            MODEL,
            choices=LOSSES,
        ),
    ] = "cross-entropy"
    noise: Annotated[
        float,
        CommandOption(
            "Standard deviation of Gaussian noise on the inputs, for models to certify with --smoothing.",
            MODEL,
        ),
    ] = 0.0
    translate: Annotated[
        int, CommandOption("Largest random translation of training images, in pixels.", DATA)
    ] = 0
    affine: Annotated[
        float,
        CommandOption("Strength of the random affine maps of training images, such as 0.1.", DATA),
    ] = 0.0
    maximizer: Annotated[
        str,
        CommandOption(
            "Maximiser of the inner problem of wrm: adaptive, which stops at --tolerance, or paper, which "
            "takes --steps steps that decrease as 1/√t.",
            METHOD,
            choices=MAXIMIZERS,
        ),
    ] = "adaptive"
    tolerance: Annotated[
        float,
        CommandOption("Accuracy to which wrm solves each inner problem, in units of the loss.", METHOD),
    ] = TOLERANCE
    seed: Annotated[
        int, CommandOption("Seed of the data split, the initial weights and the batches.", OPTIMISATION)
    ] = 0
    target: Annotated[
        str | None, CommandOption("Column of a table to predict.", DATA, default="the last column")
    ] = None
    drop: Annotated[str, CommandOption("Columns of a table to leave out, separated by commas.", DATA)] = ""
    categorical: Annotated[
        str, CommandOption("Numeric columns of a table that are categories, separated by commas.", DATA)
    ] = ""
    missing: Annotated[
        str,
        CommandOption(
            "Handling of missing numbers: fill in the training median and add an indicator column, or refuse "
            "the table.",
            DATA,
            choices=MISSING_WAYS,
        ),
    ] = "median"
    encoding: Annotated[str, CommandOption("Text encoding of a csv: file, such as latin-1.", DATA)] = "utf-8"
    separator: Annotated[str, CommandOption("Column separator of a csv: file, such as ;.", DATA)] = ","
    split: Annotated[
        str | None,
        CommandOption(
            "Split of a table: random, stratified by label, or by the groups or dates in --split-by.",
            DATA,
            default="random, unless --split-by is given",
            choices=SPLIT_WAYS,
        ),
    ] = None
    split_by: Annotated[
        str | None,
        CommandOption(
            "Column to split a table by: dates split by time; rows with equal values of another column stay "
            "together.",
            DATA,
        ),
    ] = None
    standardize: Annotated[
        bool, CommandOption("Standardise the features of a table to mean 0 and variance 1.", DATA)
    ] = True
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
            ("schedule", SCHEDULES),
            ("cost", COSTS),
            ("maximizer", MAXIMIZERS),
            ("loss", LOSSES),
            ("class_weights", CLASS_WEIGHTS),
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
        column_costs(self.feature_cost)  # checks itself
        require(
            self.feature_cost == "" or self.cost == "natural",
            "feature_cost",
            f"be left out with --cost {self.cost}",
            self.feature_cost,
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
        require_count("translate", self.translate, least=0)
        require(0 <= self.affine < 0.5, "affine", "be at least 0 and below 0.5", self.affine)
        if (self.method == "wrm" or self.certified) and len(given) != 1:
            got = f"both, {self.gamma} and {self.rho}" if given else "neither"
            raise ArgumentError(f"Give either `gamma` or `rho` for {self.method}; got {got}.")
        for name in given:
            value = getattr(self, name)
            require(0 < value < math.inf, name, "be positive and finite", value)
            require(1e-30 < value < 1e30, name, "lie between 1e-30 and 1e30", value)
