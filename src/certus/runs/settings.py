"""Settings of a run and of its certificates, as JSON types with validation.

``certus train`` and ``certus certify`` take their options from here, so nothing slow is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any

from certus._defaults import ATTACK_STEPS, CERTIFIED, PLAIN, TOLERANCE
from certus._names import GRADIENT_ATTACKS, NORMS, PAPER_NAMES
from certus.errors import LARGEST, LEAST, ArgumentError, require, require_count, require_number, require_seed
from certus.storage.files import T, check_types
from certus.table_options import MISSING_WAYS, MOST_CATEGORIES, SPLIT_WAYS, TableOptions, listed_names


def typed_decay(texts: Sequence[str]) -> float | str:
    """Return weight decay as a setting, from what was typed once or several times.

    >>> typed_decay(["0.1"]), typed_decay(["0=0.1", "2=0.01"])
    (0.1, '0=0.1,2=0.01')
    """
    try:
        (number,) = (float(text) for text in texts)
    except ValueError:  # several, or no number
        return ",".join(texts)
    return number


def decay_of_layers(setting: float | str) -> float | dict[str, float]:
    """Return weight decay as ``fit`` takes it, checked.

    >>> decay_of_layers("0=0.1,features.3=0.01")
    {'0': 0.1, 'features.3': 0.01}
    """
    if not isinstance(setting, str):
        return require_number("weight_decay", setting, zero=True)
    rule = "be one number, or LAYER=VALUE for each layer"
    amounts = _numbers_by_name("weight_decay", setting, setting.split(","), "layer", rule)
    return {layer: require_number("weight_decay", amount, zero=True) for layer, amount in amounts.items()}


def column_costs(text: str, option: str = "feature_cost") -> dict[str, float]:
    """Return the costs by column, inf for one that is fixed.

    >>> column_costs("town=3, age=inf")
    {'town': 3.0, 'age': inf}
    """
    rule = "be COLUMN=COST, several separated by commas"
    costs = _numbers_by_name(option, text, listed_names(text), "column", rule)
    for name, cost in costs.items():
        fixed = "be positive, or inf to keep the column fixed"
        require(cost > 0, option, fixed, repr(f"{name}={cost:g}"))
    return costs


def _numbers_by_name(
    option: str, text: str, entries: Iterable[str], noun: str, rule: str
) -> dict[str, float]:
    """Parse entries of the form NAME=NUMBER."""
    numbers: dict[str, float] = {}
    for entry in entries:
        name, _, number = entry.strip().rpartition("=")
        require(name not in numbers, option, f"name each {noun} once", repr(text))
        try:
            numbers[name] = float(number)
        except ValueError:
            name = ""
        require(name != "", option, rule, repr(text))
    return numbers


COSTS = ("natural", "l1", "linf")
METHODS = ("wrm", "erm", *GRADIENT_ATTACKS)
METHOD_OPTIONS = {  # option → the methods that take it; to others it means nothing
    **dict.fromkeys(
        ("gamma", "rho", "cost", "label_cost", "tolerance", "maximizer", "inner_precision", "measure_all"),
        ("wrm",),
    ),
    **dict.fromkeys(("norm", "epsilon"), GRADIENT_ATTACKS),
    **dict.fromkeys(("steps", "step_size"), ("bim", "pgd")),
    "clip": ("wrm", *GRADIENT_ATTACKS),
}
CLASS_WEIGHTS = ("equal", "balanced")
FLAGS = {"learning_rate": "--lr"}
"""Setting → its option, where that is not its name with dashes."""

PANELS = ("Data", "Model and loss", "Method", "Optimisation", "Output")
"""Panels of ``certus train --help``."""
DATA, MODEL, METHOD, OPTIMISATION, OUTPUT = PANELS


def option_field(
    panel: str,
    default: T,
    help: str,
    *,
    default_text: str = "",
    flags: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
) -> T:
    """Return a field of a dataclass that is an option of a command, under a panel of ``--help``. The
    ``default_text`` describes a default that depends on other options; ``flags`` replace the field's name."""
    about = {"panel": panel, "help": help, "default_text": default_text, "flags": flags, "choices": choices}
    return field(default=default, metadata=about)


def _check_choices(settings: Any) -> None:
    """Raise ``ArgumentError`` for a field that is none of its choices, nor None by default."""
    for each in fields(settings):
        value, choices = getattr(settings, each.name), each.metadata.get("choices")
        legal = not choices or value in choices or (value is None and each.default is None)
        require(legal, each.name, f"be one of {', '.join(choices or ())}", repr(value))


_data_option = partial(option_field, DATA)
_model_option = partial(option_field, MODEL)
_method_option = partial(option_field, METHOD)
_optimisation_option = partial(option_field, OPTIMISATION)


@dataclass(frozen=True)
class Settings:
    """Settings of a run, as the command line or a script gives them; JSON types only.

    wrm takes exactly one of gamma and rho, the other methods neither; with ``certified`` every method may
    have a gamma. ``tolerance`` is the accuracy ε of the inner maximiser in thm:convergence. ``folder`` is the
    folder that a relative path of the data refers to, or for moved data their new location, such as
    "csv:/data/people.csv"; empty for the working directory.
    """

    data: str
    model: str
    method: str = _method_option(
        "wrm",
        "Training method: distributionally robust (wrm), ordinary (erm) or adversarial (fgsm, bim, pgd).",
        choices=METHODS,
    )
    gamma: float | None = _method_option(
        None, "Penalty on transport in the inner problem, for wrm and for --certified."
    )
    rho: float | None = _method_option(
        None, "Mean transport cost to be robust to; gamma is adjusted until it is reached."
    )
    certified: bool = _method_option(
        False, "Project the weights after every step, so that the inner problem is provably concave at gamma."
    )
    cost: str = _method_option(
        "natural",
        "Transport cost of wrm: natural (squared L2, weighted for columns of different kinds), the squared "
        "sup-norm (linf) or L1 norm (l1), or FILE.py:FACTORY for a file that is executed once.",
    )
    feature_cost: str = _method_option(
        "",
        "Cost factors of columns of a table, such as town=3,age=inf. The factor of other columns is 1; "
        "inf keeps a column fixed.",
    )
    label_cost: float | None = _method_option(
        None, "Cost of changing a label, for wrm on classes. Without it labels never change."
    )
    norm: str | None = _method_option(
        None, "Norm of the perturbations of fgsm, bim and pgd.", default_text="inf", choices=tuple(NORMS)
    )
    epsilon: float | None = _method_option(
        None,
        "Radius of the perturbations of fgsm, bim and pgd. from:RUN is the root mean square "
        "distance by which the wrm training of RUN moves its data.",
    )
    steps: int = _method_option(
        ATTACK_STEPS, "Gradient steps of bim and pgd, and of wrm with --maximizer paper.", default_text="15"
    )
    step_size: float | None = _method_option(
        None, "Step size of bim and pgd.", default_text="2.5 * epsilon / steps"
    )
    clip: bool = _method_option(True, "Keep perturbed inputs inside the domain of the data, such as [0, 1].")
    epochs: int = _optimisation_option(
        PLAIN.epochs, "Passes over the training data.", default_text="10, more for small data"
    )
    batch_size: int = _optimisation_option(
        PLAIN.batch_size, "Samples per optimisation step, over all processes."
    )
    optimizer: str = _optimisation_option("adam", "Optimisation algorithm.", choices=("adam", "sgd"))
    learning_rate: float = _optimisation_option(
        PLAIN.learning_rate,
        "Learning rate.",
        default_text="0.01 with --certified, else 0.004 for mlp:…, else 0.001",
    )
    schedule: str = _optimisation_option(
        PLAIN.schedule,
        "Schedule of the learning rate: constant, a cosine that falls to 0, or onecycle, which rises to --lr "
        "within the first third of the steps and then falls to 0.",
        default_text="constant; cosine with --certified; onecycle for lipschitz:…",
        choices=("constant", "cosine", "onecycle"),
    )
    precision: str = _optimisation_option(
        "float32",
        "Arithmetic of the training steps: float32, or bfloat16 for products (weights stay in float32), "
        "which is faster where processors have it. Certificates are about the float32 weights either way.",
        choices=("float32", "bfloat16"),
    )
    compile: bool = _optimisation_option(
        False,
        "Compile the network by torch.compile, which makes most training steps faster after a slow start. "
        "Needs a C++ compiler.",
    )
    weight_decay: float | str = _optimisation_option(
        0.0,
        "L2 penalty (λ/2)·|w|² on the weights: λ for all layers, or LAYER=λ for one; may be repeated.",
        default_text="0",
    )
    class_weights: str = _model_option(
        "equal",
        "Weights of the classes in the loss: equal, or balanced by their frequency.",
        choices=CLASS_WEIGHTS,
    )
    label_smoothing: float = _model_option(0.0, "Label smoothing of the loss, also in the inner problem.")
    margin: float = _model_option(
        0.0, "Margin that the training loss demands between the true class and every other."
    )
    temperature: float = _model_option(
        1.0, "Temperature of the training loss. Values below 1 favour clean accuracy over robustness."
    )
    loss: str = _model_option(
        "cross-entropy",
        "Loss of a classifier: cross-entropy, or bounded (1 minus the probability of the true class).",
        choices=("cross-entropy", "bounded"),
    )
    noise: float = _model_option(
        0.0, "Standard deviation of Gaussian noise on the training inputs, for certus certify --smoothing."
    )
    maximizer: str = _method_option(
        "adaptive",
        "Maximizer of the inner problem of wrm: adaptive, which stops at --tolerance, or paper, which "
        "takes --steps steps that decrease as 1/√t.",
        choices=("adaptive", "paper"),
    )
    tolerance: float = _method_option(
        TOLERANCE, "Accuracy to which wrm solves each inner problem, in units of the loss."
    )
    measure_all: bool = _method_option(
        False,
        "Measure rho_hat of wrm at the end on all training samples, instead of on a random subset of a "
        "twentieth and at least 2,048.",
    )
    inner_precision: str = _method_option(
        "auto",
        "Precision of the ascents of wrm: float32, bfloat16, or auto, bfloat16 where the device has "
        "instructions for it and the layers are wide.",
        choices=("auto", "float32", "bfloat16"),
    )
    seed: int = _optimisation_option(0, "Seed of the data split, the initial weights and the batches.")
    target: str | None = _data_option(None, "Column of a table to predict.", default_text="the last column")
    drop: str = _data_option("", "Columns of a table to leave out, separated by commas.")
    categorical: str = _data_option(
        "", "Numeric columns of a table that are categories, separated by commas."
    )
    missing: str = _data_option(
        "median",
        "Handling of missing numbers: fill in the training median and add an indicator column, or refuse "
        "the table.",
        choices=MISSING_WAYS,
    )
    keep: str = _data_option(
        "", "Columns of a table to keep although they look like identifiers, separated by commas."
    )
    encoding: str | None = _data_option(
        None,
        "Text encoding of a csv: file, such as cp1252.",
        default_text="guessed: UTF-8, UTF-16, cp1252, latin-1",
    )
    separator: str | None = _data_option(
        None, "Column separator of a csv: file, such as ;.", default_text="guessed"
    )
    decimal: str | None = _data_option(
        None, "Decimal mark, for numbers such as 1.234, which can be read in two ways.", choices=(".", ",")
    )
    thousands: str | None = _data_option(
        None,
        "Mark between groups of digits, where numbers can be read in two ways.",
        choices=(",", ".", " ", "'"),
    )
    na: str = _data_option(
        "", "Further cells that are missing values, separated by commas, such as --na=-,none."
    )
    date_format: str | None = _data_option(
        None, "Format of dates that can be read in two ways, such as %d/%m/%Y."
    )
    max_categories: int = _data_option(
        MOST_CATEGORIES,
        "Largest number of categories of a column; if there are more, the rarest become (other).",
    )
    date_features: str = _data_option(
        "",
        "Inputs that a date gives the model: trend (the day), season, or trend,season. By default it gives "
        "none, and only orders or splits the rows (--split-by).",
    )
    split: str | None = _data_option(
        None,
        "Split of a table: random, stratified by label, or by the groups or dates in --split-by.",
        default_text="random, unless --split-by is given",
        choices=SPLIT_WAYS,
    )
    split_by: str | None = _data_option(
        None,
        "Column to split a table by. A column of dates splits by time; with any other column, rows of equal "
        "value stay together.",
    )
    standardize: bool = _data_option(True, "Standardise the features of a table to mean 0 and variance 1.")
    translate: int = _data_option(0, "Largest random translation of training images, in pixels.")
    affine: float = _data_option(0.0, "Strength of the random affine maps of training images, such as 0.1.")
    flip: bool = _data_option(False, "Mirror training images at random, left to right.")
    folder: str = ""

    @property
    def table(self) -> TableOptions:
        """Options for reading a table."""
        return TableOptions(**{field.name: getattr(self, field.name) for field in fields(TableOptions)})

    @classmethod
    def chosen(cls, **given: Any) -> Settings:
        """Return settings from options, without those that are None. Some defaults follow from others."""
        options = {name: value for name, value in given.items() if value is not None}
        method = options.get("method", "wrm")
        defaults: dict[str, Any] = {}
        if options.get("certified"):
            defaults |= {"learning_rate": CERTIFIED.learning_rate, "schedule": CERTIFIED.schedule}
        if PAPER_NAMES.get(method, method) in GRADIENT_ATTACKS:
            defaults["norm"] = "inf"
        return cls(**defaults | options)

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "method", PAPER_NAMES.get(self.method, self.method))
        self.table  # noqa: B018 (checks its own)
        _check_choices(self)
        for name in ("epochs", "batch_size", "steps"):
            require(getattr(self, name) >= 1, name, "be at least 1", getattr(self, name))
        require_number("learning_rate", self.learning_rate)
        decay_of_layers(self.weight_decay)
        column_costs(self.feature_cost)
        require_count("translate", self.translate, least=0)
        for name in ("noise", "margin"):
            require_number(name, getattr(self, name), zero=True)
        optional = ("gamma", "rho", "label_cost", "norm", "epsilon", "step_size")
        for name in optional:  # None where they are left out
            taken = self.method in METHOD_OPTIONS[name] or (self.certified and name == "gamma")
            value = getattr(self, name)
            require(value is None or taken, name, f"be left out for {self.method}", value)
        if self.method in GRADIENT_ATTACKS and (self.epsilon is None or self.norm is None):
            raise ArgumentError(
                f"Give `epsilon` and `norm` for {self.method}; "
                f"got epsilon={self.epsilon} and norm={self.norm}."
            )
        natural, follows = self.cost == "natural", self.certified and self.rho is not None
        label_rule = f"be positive and at most {LARGEST:g}"
        loss_rule = "be cross-entropy in certified training, whose bounds are for that loss"
        for name, valid, rule in (
            ("tolerance", 0 <= self.tolerance < math.inf, "be finite and not negative"),
            ("batch_size", self.batch_size < 2**31, "be less than 2³¹"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "lie in [0, 1)"),
            ("seed", 0 <= self.seed < 2**32, "lie between 0 and 2³² − 1"),
            ("epsilon", 0 <= (self.epsilon or 0) < math.inf, "be finite and not negative"),
            ("step_size", self.step_size is None or 0 < self.step_size < math.inf, "be positive and finite"),
            ("cost", self.cost in COSTS or ".py:" in self.cost, f"be {', '.join(COSTS)} or FILE.py:FACTORY"),
            ("cost", not self.certified or self.cost in COSTS, "be left out with --certified"),
            ("cost", self.method == "wrm" or natural, f"be left out for {self.method}"),
            ("feature_cost", self.feature_cost == "" or natural, f"be left out with --cost {self.cost}"),
            ("label_cost", self.label_cost is None or 0 < self.label_cost <= LARGEST, label_rule),
            ("label_cost", self.label_cost is None or not self.certified, "be left out with --certified"),
            ("label_cost", self.label_cost is None or self.noise == 0, "be left out with noise"),
            ("cost", self.noise == 0 or natural, "be natural with noise, which is Gaussian"),
            ("loss", not self.certified or self.loss == "cross-entropy", loss_rule),
            ("temperature", 1e-3 <= self.temperature <= 1e3, "lie between 0.001 and 1000"),
            ("temperature", not follows or self.temperature == 1, "be 1 where γ follows ρ"),
            ("affine", 0 <= self.affine < 0.5, "be at least 0 and below 0.5"),
        ):
            require(valid, name, rule, repr(getattr(self, name)))
        given = [name for name in ("gamma", "rho") if getattr(self, name) is not None]
        if (self.method == "wrm" or self.certified) and len(given) != 1:
            got = f"both, {self.gamma} and {self.rho}" if given else "neither"
            raise ArgumentError(f"Give either `gamma` or `rho` for {self.method}; got {got}.")
        for name in given:
            value = getattr(self, name)
            require(0 < value < math.inf, name, "be positive and finite", value)
            require(1e-30 < value < 1e30, name, "lie between 1e-30 and 1e30", value)


MOST_ROUNDS = 10_000
_sample_option = partial(option_field, "Samples and distance")
_bound_option = partial(option_field, "Bounds")


@dataclass(frozen=True)
class CertifySettings:
    """Settings of ``certus certify``, as the command line or a script gives them; JSON types only.

    Samples are stratified by label, unless there is a confidence, which requires a plain random subset.
    """

    rho: tuple[float, ...] = _sample_option(
        (),
        "Mean transport cost, a mean squared distance; may be repeated. from:FILE estimates it from older "
        "rows, as the distances between their chunks (--history-by) in excess of chance.",
        default_text="the square of EPSILON if that is given, else the rho of the run",
    )
    epsilon: tuple[float, ...] = _sample_option(
        (),
        "Radius of certified accuracy: the largest move of each sample in the cost's norm; may be repeated.",
    )
    confidence: float | None = _bound_option(
        None,
        "Bound the population too, with this confidence. The samples must be held out.",
        default_text="no population bound; 0.95 with --smoothing",
    )
    clip: float | None = _bound_option(
        None, "Certify min(loss, CLIP) in place of the loss. (--clip of certus train is about inputs.)"
    )
    data: str | None = _sample_option(
        None,
        "Data set to certify on, as for certus train; scaled like the run's own.",
        default_text="the run's own",
    )
    split: str = _sample_option(
        "test",
        "Split of the data: test, calibration, train, all, or a named later sample such as 2018.",
        default_text="test; all with --data",
    )
    samples: int | None = _sample_option(None, "Number of samples, drawn at random.", default_text="all")
    shard: str | None = _sample_option(
        None,
        "Certify one block of the randomly ordered samples: 3/20 is the third of 20. certus merge joins the "
        "blocks.",
        default_text="all",
    )
    seed: int = _sample_option(
        0, "Seed of the samples and of the population bound. Fix it before you see results."
    )
    own_labels: bool = _sample_option(False, "Certify that the network's own predictions do not change.")
    label_cost: float | None = _sample_option(
        None, "Cost of changing a label. Without it labels never change."
    )
    inequality: str = _bound_option(
        "betting",
        "Concentration inequality of the population bound.",
        choices=("betting", "bernstein", "hoeffding"),
    )
    gammas: tuple[float, ...] | None = _bound_option(
        None,
        "Value of the dual variable gamma; may be repeated.",
        default_text="a grid chosen from the network and rho",
        flags=("--gamma",),
    )
    local_radii: int = _bound_option(
        6, "Number of radii of the local bounds around each sample; 0 is fastest."
    )
    gamma_rounds: int = _bound_option(1, "Number of rounds in which the values of gamma are refined.")
    attack_steps: int = _bound_option(10, "Gradient steps of attacks for the lower bounds; 0 for none.")
    unbounded: bool = _sample_option(False, "Let inputs leave the domain of the data, such as [0, 1].")
    deployment: str | None = _bound_option(
        None,
        "Arithmetic that the upper bounds hold for: float32, with sums in any order.",
        default_text="real arithmetic with the stored weights",
        choices=("float32",),
    )
    class_weights: str = _sample_option(
        "equal",
        "Weights of the classes in the loss: equal, or balanced by their frequency.",
        default_text="as in training",
        choices=CLASS_WEIGHTS,
    )
    rho_origin: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        gammas, single = self.gammas or (), {"clip": (self.clip,), "label_cost": (self.label_cost,)}
        for name, values in {"rho": self.rho, "gamma": gammas, **single}.items():
            for value in values:  # what is no number, or negative, is refused where it is used
                require(value is None or not value > LARGEST, name, f"be at most {LARGEST:g}", value)
        for value in gammas:
            require(not value < LEAST, "gamma", f"be at least {LEAST:g}", value)
        for name in ("local_radii", "gamma_rounds", "attack_steps"):
            value = getattr(self, name)
            require(0 <= value <= MOST_ROUNDS, name, f"lie between 0 and {MOST_ROUNDS}", value)
        _check_choices(self)
        require_seed(self.seed)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON. Equal class weights, no origin of ρ and no shard are omitted."""
        omitted = (("class_weights", "equal"), ("rho_origin", ""), ("shard", None), ("deployment", None))
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if (name, value) not in omitted
        }
