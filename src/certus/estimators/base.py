"""Base of the estimators: feature prices, networks, training, certificates.

Training minimises the robust surrogate on the (weighted) sample,

    Σᵢ wᵢ φ_γ(θ; (xᵢ, yᵢ)) / Σᵢ wᵢ,      φ_γ = sup_x ℓ(θ; (x, y)) − γ c(x, xᵢ)          [eqn:inner-sup]

by Algorithm 1 in float64, at a given γ or at the γ that moves the sample by a mean cost of ρ. The cost is
c(x, x₀) = Σ_j p_j (x_j − x₀_j)²; a price of ∞ freezes a feature. By default p_j = 1/s_j², s_j the standard
deviation of the feature in the training data: distances then count standard deviations.

A network made from sizes is trained on z = (x − mean)/spread, and in a regression towards (y − m)/s. After
training both scalings are folded into its first and last layer,

    W₁ ← W₁ diag(1/spread),  b₁ ← b₁ − W₁ mean         W_L ← s·W_L,  b_L ← s·b_L + m

so that the network that is certified and saved takes rows in their own units.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from certus.bounds import input_smoothness
from certus.certificates import Certificate, certify
from certus.certificates.linear import certify_linear
from certus.costs import Cost, LabelCost, Masked, SquaredL2, WeightedL2, feature_mask
from certus.data import Samples
from certus.errors import ArgumentError, as_count, require, require_number
from certus.inner import WRM, default_maximizer
from certus.losses import Criterion, ModelLoss
from certus.models import certified_mlp, mlp
from certus.training import Callback, CertifiedTraining, TrainingState, fit
from certus.training.metrics import clean_metrics


def feature_spreads(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (features,) means and standard deviations of weighted rows; 1 for a constant feature."""
    mean = np.average(inputs, axis=0, weights=weights)
    spread = np.sqrt(np.average((inputs - mean) ** 2, axis=0, weights=weights))
    # Less than what rounding alone can make of a constant is no spread.
    constant = spread <= 1e-10 * np.maximum(np.abs(mean), np.abs(inputs).max(0))
    return mean, np.where(constant, 1.0, spread)


def read_prices(prices: Any, spreads: np.ndarray, names: np.ndarray | None) -> np.ndarray:
    """Return (features,) positive prices, ∞ for frozen features, from None, one number, one for each feature,
    or a mapping from names or positions, beside which others keep 1/s²."""
    count, chosen = len(spreads), 1 / spreads**2
    if isinstance(prices, Mapping):
        labels = [] if names is None else [str(name) for name in names]
        for key, price in prices.items():
            require(isinstance(price, Real), "feature_costs", f"be a number for {key!r}", repr(price))
            position = labels.index(key) if isinstance(key, str) and key in labels else key
            if not isinstance(position, int | np.integer) or not 0 <= position < count:
                legal = f"one of {', '.join(labels)}" if labels else f"a number from 0 to {count - 1}"
                raise ArgumentError(f"`feature_costs` must name features, {legal}; got {key!r}.")
            chosen[int(position)] = price
    elif prices is not None:
        rule = f"be a number, one for each of the {count} features, or a mapping of names to prices"
        try:
            values = np.asarray(prices, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"`feature_costs` must {rule}; got {prices!r}.") from None
        require(values.shape in ((), (count,)), "feature_costs", rule, f"shape {values.shape}")
        chosen = np.broadcast_to(values, (count,)).astype(np.float64)
    require(bool((chosen > 0).all()), "feature_costs", "be positive (∞ freezes a feature)", prices)
    free = bool(np.isfinite(chosen).any())
    require(free, "feature_costs", "leave at least one feature free to move", prices)
    return chosen


def cost_of(prices: np.ndarray) -> Cost:
    """Return the transport cost of (features,) prices.

    >>> cost_of(np.array([1.0, np.inf]))(torch.tensor([[3.0, 0.0]]), torch.zeros(1, 2))
    tensor([9.])
    """
    free = np.isfinite(prices)
    weights = torch.from_numpy(np.where(free, prices, 1.0))
    cost: Cost = SquaredL2() if bool((weights == 1).all()) else WeightedL2(weights)
    return cost if bool(free.all()) else Masked(cost, torch.from_numpy(free))


def is_sizes(network: Any) -> bool:
    """Whether a network is given by the widths of its hidden layers."""
    return isinstance(network, tuple | list)


def make_network(network: Any, inputs: int, outputs: int, *, certified: bool, seed: int) -> nn.Module:
    """Build a network in float64, with weights drawn from ``seed`` where they are not given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if is_sizes(network):
            whole = all(isinstance(width, int | np.integer) and width >= 1 for width in network)
            require(whole, "network", "have whole numbers of units, at least 1", network)
            sizes = [int(width) for width in network]
            build = certified_mlp if certified and sizes else partial(mlp, activation="softplus")
            built: Any = build(inputs, sizes, outputs)
        elif isinstance(network, nn.Module):
            built = copy.deepcopy(network)
        else:
            rule = "be widths such as (32,), a torch.nn.Module, or a function of `inputs` and `outputs`"
            require(callable(network), "network", rule, network)
            offered = {"inputs": inputs, "outputs": outputs}
            names = inspect.signature(network).parameters.keys() & offered.keys()
            built = network(**{name: offered[name] for name in names})
            if not isinstance(built, nn.Module):
                raise ArgumentError(f"`network` must make a torch.nn.Module; got {type(built)}.")
    module: nn.Module = built.double()
    with torch.no_grad():
        try:
            shape = tuple(module.eval()(torch.zeros(2, inputs, dtype=torch.float64)).shape)
        except (RuntimeError, TypeError, ValueError) as reason:
            rule = f"take rows of {inputs} features"
            raise ArgumentError(f"`network` must {rule}; it fails: {reason}") from reason
    fits = shape == (2, outputs) or (outputs == 1 and shape == (2,))
    require(fits, "network", f"return outputs of shape (batch, {outputs})", f"shape {shape} for 2 rows")
    return module


class EpochLines(Callback):
    """Print a line for one in ``every`` epochs."""

    def __init__(self, every: int) -> None:
        self._every = every

    def on_epoch_end(self, state: TrainingState) -> None:
        entry = state.history[-1]
        if entry.epoch % self._every == 0:
            gamma = "" if entry.gamma is None else f"  gamma {entry.gamma:.4g}"
            print(f"epoch {entry.epoch}: loss {entry.loss:.6g}{gamma}")


class EarlyStopping(Callback):
    """Stop when the loss on held-out samples has not fallen for some epochs, and restore the best weights."""

    def __init__(self, held_out: Samples, criterion: Criterion, patience: int, epochs: int) -> None:
        self._data, self._criterion, self._patience, self._epochs = held_out, criterion, patience, epochs
        self._best, self._since = math.inf, 0
        self._best_weights: dict[str, Tensor] = {}

    def on_epoch_end(self, state: TrainingState) -> None:
        loss = clean_metrics(ModelLoss(state.model, self._criterion), self._data)["loss"]
        self._since += 1
        if loss < self._best:
            self._best, self._since = loss, 0
            self._best_weights = {name: value.clone() for name, value in state.model.state_dict().items()}
        state.should_stop = self._since >= self._patience
        if state.should_stop or len(state.history) == self._epochs:
            state.model.load_state_dict(self._best_weights)


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Moved rows with weights, at mean transport cost at most ρ from the sample.

    Attributes:
        X, y: (m, features) and (m,) moved samples. Where the worst case is a mixture of several moves, each
            sample appears once for each of them.
        weights: (m,) positive, with sum 1.
        loss: the mean loss there, *attained*; bound: the upper bound for all distributions within ρ,
            *proven*.
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    rho: float
    loss: float
    bound: float


@dataclass(frozen=True)
class FeatureBracket:
    """Bracket of the worst case if one feature moves alone.

    Attributes:
        feature: its name.
        loss_low, loss_high: the worst mean loss is at least (*attained*) and at most (*proven*) this.
        error_low, error_high: the same of the error rate; None for a regression.
    """

    feature: str
    loss_low: float
    loss_high: float
    error_low: float | None
    error_high: float | None


_RHO = 0.01
_GRADIENTS = 5  # of one inner problem: more buy little on small networks


class RobustEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of ``RobustClassifier`` and ``RobustRegressor``: everything but the encoding of targets."""

    module_: nn.Module
    _criterion: Criterion

    def _set_parameters(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of ``__init__`` unchanged, as scikit-learn requires."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    @abstractmethod
    def _encode(self, y: Any) -> Tensor:
        """Return (n,) targets for the network."""

    @abstractmethod
    def _decode(self, targets: Tensor) -> np.ndarray:
        """Return targets as the user gave them."""

    def _label_cost(self) -> LabelCost | None:
        return None

    def _class_factors(self, y: Any) -> np.ndarray | None:
        """Return (n,) factors of the sample weights by class; None without class weights."""
        return None

    def _rows(self, X: Any) -> Tensor:
        """Return (n, features) float64 rows for the fitted network."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return torch.from_numpy(np.array(rows))

    def _outputs(self, X: Any) -> np.ndarray:
        rows = self._rows(X)
        with torch.no_grad():
            return np.asarray(self.module_(rows).numpy())

    def _positive(self, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, targets and weights of the samples with positive weight."""
        if sample_weight is not None and not np.asarray(sample_weight).any():
            raise ArgumentError("`sample_weight` must not be zero for all samples: nothing is left to learn.")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weights < 0).any():
            raise ArgumentError("`sample_weight` must not be negative.")
        counted = weights > 0
        return X[counted], y[counted], weights[counted]

    def _train(
        self, X: np.ndarray, targets: Tensor, weights: np.ndarray, outputs: int, certified: bool, unit: float
    ) -> None:
        """Fit ``module_``; γ is divided by the ``unit`` of the loss."""
        from lightning_fabric import Fabric  # it loads torch._dynamo, which takes a second and a half

        self._check_parameters()
        # Without a random state a new generator, not NumPy's global one.
        fresh = self.random_state is None
        generator = np.random.RandomState() if fresh else check_random_state(self.random_state)
        seed = int(generator.randint(2**31 - 1))
        mean, spread = feature_spreads(X, weights)
        self.feature_spreads_ = spread
        names = getattr(self, "feature_names_in_", None)
        self.feature_costs_ = read_prices(self.feature_costs, spread, names)
        module = make_network(self.network, X.shape[1], outputs, certified=certified, seed=seed)
        inside = is_sizes(self.network)
        inputs = torch.from_numpy((X - mean) / spread if inside else np.array(X))
        prices = self.feature_costs_
        if inside:  # in units of the spreads, where the default prices are exactly 1
            prices = np.ones(len(spread)) if self.feature_costs is None else prices * spread**2
        cost = cost_of(prices)
        callbacks: list[Callback] = []
        if self.verbose:
            callbacks.append(EpochLines(1 if self.verbose > 1 else max(1, self.epochs // 10)))
        data = Samples(inputs, targets, torch.from_numpy(np.array(weights)))
        if self.early_stopping:
            data, stopping = self._held_out(data, seed)
            callbacks.append(stopping)
        fitted = fit(
            module,
            data,
            method=self._method(cost, unit),
            criterion=self._criterion,
            epochs=self.epochs,
            batch_size=min(int(self.batch_size), len(data)),
            optimizer=lambda groups: Adam(groups, lr=self.learning_rate),
            scheduler=lambda optimizer: CosineAnnealingLR(optimizer, self.epochs),
            weight_decay=self.weight_decay,
            certified=CertifiedTraining() if certified else None,
            seed=seed,
            fabric=Fabric(accelerator="cpu", devices=1),
            callbacks=callbacks,
            progress=False,
        )
        if inside:  # fold (x − mean)/spread into the first layer
            first = next(part for part in module.modules() if isinstance(part, nn.Linear))
            with torch.no_grad():
                first.weight.div_(torch.from_numpy(spread))
                first.bias.sub_(first.weight @ torch.from_numpy(mean))
        self.module_, self.cost_ = module, cost_of(self.feature_costs_)
        self.n_iter_ = len(fitted.history)
        self.loss_curve_ = [epoch.loss * unit for epoch in fitted.history]
        robust = fitted.robustness
        self.gamma_ = None if robust is None else robust.gamma * unit
        self.rho_hat_ = 0.0 if robust is None else robust.rho_hat
        self.curvature_ = None
        if certified:
            bound = input_smoothness(module, self._criterion, input_shape=(X.shape[1],), cost=self.cost_)
            self.curvature_ = bound.curvature

    def _check_parameters(self) -> None:
        both = self.gamma is not None and self.rho is not None
        require(not both, "gamma", "be left out where `rho` is given", f"{self.gamma} and {self.rho}")
        if self.gamma is not None:
            require_number("gamma", self.gamma)
        if self.rho is not None:
            require_number("rho", self.rho, zero=True)
        as_count("epochs", self.epochs)
        as_count("batch_size", self.batch_size)
        require_number("learning_rate", self.learning_rate)
        require(isinstance(self.verbose, Integral), "verbose", "be 0, 1 or 2", repr(self.verbose))

    def _method(self, cost: Cost, unit: float) -> WRM | None:
        """Return WRM at ``gamma`` in units of the loss, or at ``rho``; None for ρ = 0, ordinary training."""
        rho = _RHO if self.gamma is None and self.rho is None else self.rho
        if self.gamma is None and rho == 0:
            return None
        gamma = None if self.gamma is None else self.gamma / unit
        maximizer = default_maximizer(cost, max_gradients=_GRADIENTS)
        return WRM(gamma, rho=rho, cost=cost, label_cost=self._label_cost(), maximizer=maximizer)

    def _held_out(self, data: Samples, seed: int) -> tuple[Samples, EarlyStopping]:
        """Return the samples to train on, and early stopping by the others."""
        share = self.validation_fraction
        inside = isinstance(share, Real) and 0 < float(share) < 1
        require(inside, "validation_fraction", "lie between 0 and 1", repr(share))
        labels = None if data.targets.is_floating_point() else data.targets.numpy()
        rows = np.arange(len(data))
        try:
            train, others = train_test_split(rows, test_size=share, random_state=seed, stratify=labels)
        except ValueError as reason:
            raise ArgumentError(f"`early_stopping` cannot hold out a share of {share}: {reason}") from None
        patience, held_out = as_count("patience", self.patience), data[torch.from_numpy(others)]
        stopping = EarlyStopping(held_out, self._criterion, patience, self.epochs)
        return data[torch.from_numpy(train)], stopping

    def certify(
        self,
        X: Any,
        y: Any,
        rho: float | list[float],
        *,
        sample_weight: Any = None,
        confidence: float | None = None,
        **options: Any,
    ) -> Certificate:
        """Bracket the worst loss (and error rate) over all distributions within transport cost ρ of (X, y).

        Args:
            rho: mean transport costs, in the prices ``feature_costs_``; one or several.
            sample_weight: certifies the weighted sample, and so does ``class_weight``; both are refused
                with ``confidence``, which takes the samples for independent draws.
            confidence: 1 − δ, for the population that X and y were drawn from; nothing may have been fitted
                or tuned on them.
            options: further options of ``certus.certify``.
        """
        check_is_fitted(self)
        samples, label_cost = self._samples(X, y, sample_weight, confidence), self._label_cost()
        problem: dict[str, Any] = {"rho": rho, "criterion": self._criterion, "cost": self.cost_}
        if label_cost is None and confidence is None and options.keys() <= {"epsilon", "labels"}:
            exact = certify_linear(self.module_, samples, **problem, **options)
            if exact is not None:
                return exact
        options = {"label_cost": label_cost, "confidence": confidence, "progress": False} | options
        return certify(self.module_, samples, **problem, **options)

    def _samples(self, X: Any, y: Any, sample_weight: Any, confidence: float | None = None) -> Samples:
        inputs, targets, factors = self._rows(X), self._encode(y), self._class_factors(y)
        if sample_weight is None and factors is None:
            return Samples(inputs, targets)
        if confidence is not None:
            name = "sample_weight" if sample_weight is not None else "class_weight"
            reason = "a weighted sample is not an independent draw from a population"
            rule = f"be left out with `confidence`: {reason}"
            raise ArgumentError(f"`{name}` must {rule}; got confidence={confidence}.")
        weights = _check_sample_weight(sample_weight, inputs.numpy(), dtype=np.float64)
        counts = torch.from_numpy(np.array(weights if factors is None else weights * factors))
        return Samples(inputs, targets, counts)

    def worst_case(self, X: Any, y: Any, rho: float, *, sample_weight: Any = None) -> WorstCase:
        """Return the worst distribution found within transport cost ρ of (X, y): moved rows with weights."""
        certificate = self.certify(X, y, rho, sample_weight=sample_weight)
        data, weights = certificate.worst_case_data(rho)
        return WorstCase(
            X=data.inputs.numpy(),
            y=self._decode(data.targets),
            weights=weights.numpy(),
            rho=float(rho),
            loss=certificate.lower(rho),
            bound=certificate.bound(rho),
        )

    def fragile_features(
        self, X: Any, y: Any, *, by: float = 0.1, sample_weight: Any = None
    ) -> list[FeatureBracket]:
        """Bracket the worst case if one feature moves alone, for each feature; the most fragile first.

        Args:
            by: root mean square move, in units of its ``feature_spreads_``.
        """
        data, count = self._samples(X, y, sample_weight), self.n_features_in_
        require_number("by", by)
        rho, distances = by**2, WeightedL2(torch.from_numpy(1 / self.feature_spreads_**2))
        brackets = []
        for place, name in enumerate(getattr(self, "feature_names_in_", [f"x{at}" for at in range(count)])):
            cost = Masked(distances, feature_mask(count, [place]))
            problem: dict[str, Any] = {"rho": rho, "criterion": self._criterion, "cost": cost}
            certificate = certify_linear(self.module_, data, **problem)
            at = (certificate or certify(self.module_, data, **problem, progress=False)).bracket(rho)
            ends = (at.loss_low, at.loss_high, at.error_low, at.error_high)
            brackets.append(FeatureBracket(str(name), *ends))
        return sorted(brackets, key=lambda bracket: -bracket.loss_low)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator into one file of tensors and JSON, which executes nothing when read.

        ``certus.estimators.load_estimator`` reads it.
        """
        from certus.estimators.robust import save_estimator  # which knows both kinds of estimators

        save_estimator(self, Path(path))
