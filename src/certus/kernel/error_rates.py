"""Error rates, rates by class and costs of confusion within a mean transport cost ρ, by weak duality.

*The knapsack.* For the 0–1 loss φ_γ(z₀) = (1 − γτ)₊, τ the least cost of an error of the sample. Hence for
every γ ≥ 0, and every lower bound τ ≥ 0 on these costs, ∞ where no error is possible,

    sup {P(error) : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n (1 − γτ)₊.

The least right-hand side is a fractional knapsack, at the inverse cost of the last error that ρ pays for: a
proposal; any γ is valid. At γ = 0 it is the share of samples with finite τ, the limit of small γ.

*By class.* Labels do not move, so that a shift keeps the share of every label. Let κ_ik ≥ 0 be a lower bound
on the cost of moving sample i, of label y_i, to a point that may be predicted as k (ties included), κ_iy = 0,
and C[y, k] the cost of predicting k where y is true. A move of cost c costs C[y_i, k] for some k with
κ_ik ≤ c. So for every γ ≥ 0, by weak duality,

    sup {E_P C[Y, prediction] : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n max_k (C[y_i, k] − γκ_ik).

Every rate is such a mean. With the shares p of the labels, of which m occur,

    1 − recall of y:           C[y, k] = 1/p_y for k ≠ y;
    false-positive rate of k:  C[y, k] = 1/(1 − p_k) for y ≠ k;
    balanced error:            C[y, k] = 1/(m·p_y) for k ≠ y.

*Population.* Given the labels, the rows of a group of labels are independent draws of its law. Let its share
be at least p̲ (Clopper and Pearson), and its rows n_g. A mean of rates, (1/m) Σ_g P(event | g) over m
disjoint groups, κ the least cost of the event, is then at most

    γρ + (1/m) Σ_g (E_{n_g} (1 − γ·m·p̲_g·κ)₊ + √(ln(1/δ')/2n_g))        for all ρ and γ at once (DKW),

since the mean is at most γρ + Σ_g p_g E_g (1/(m·p_g) − γκ)₊ by weak duality. All groups together have δ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.binomial import clopper_pearson
from certus.kernel.concentration import dkw
from certus.kernel.passes import Refused
from certus.kernel.rounding import FARTHEST, FEW, SOME, down, mean_up, slack, up

_LARGEST = 1e100  # entry of C, so that no difference overflows


def error_gains(costs: Tensor, gamma: float) -> Tensor:
    """Return (n,) upper bounds on (1 − γτ)₊, at most 1, from (n,) costs τ."""
    if not 0 <= gamma < math.inf or not bool((costs >= 0).all()):
        raise Refused(f"costs of errors must be at least 0, and gamma finite; got gamma = {gamma}")
    gains = 1 - gamma * costs.double().where(torch.isfinite(costs), 0.0)
    # 1 − γτ is off by 2⁻⁵² where γτ ≤ 1.
    return (gains + FEW).clamp(0, 1).where(torch.isfinite(costs), 0.0)


def worst_error_rate(costs: Tensor, rho: float, gamma: float, weights: Tensor | None = None) -> float:
    """Return γρ + E_n (1 − γτ)₊, rounded up, at most 1; (n,) weights have mean 1, and also weigh the
    costs."""
    if weights is not None and not bool((weights >= 0).all()):
        raise Refused("weights must be at least 0")
    return min(1.0, dual_bound({gamma: mean_up(error_gains(costs, gamma), weights)}, rho))


def dual_bound(means: Mapping[float, float], rho: float) -> float:
    """Return min_γ γρ + U_γ, rounded up, where U_γ ≥ E φ_γ for each γ ≥ 0 of a grid: it bounds the worst
    mean."""
    if min(means, default=0.0) < 0 or not 0 <= rho <= FARTHEST:
        raise Refused(f"gamma must be at least 0, and rho lie between 0 and {FARTHEST:g}; got rho = {rho}")
    bounds = (gamma * rho + mean + SOME * (gamma * rho + abs(mean)) for gamma, mean in means.items())
    return min(bounds, default=math.inf)


@dataclass(frozen=True, eq=False)
class ClassCosts:
    """κ of n samples, which ``Statement.by_class`` takes from bounds of the kernel.

    Attributes:
        targets: (n,) labels; costs: (n, classes) κ, ∞ where a prediction is impossible, 0 for the label.
        weights: (n,) with mean 1; None if all are alike.
    """

    targets: Tensor
    costs: Tensor
    weights: Tensor | None = None

    @staticmethod
    def of(
        targets: Tensor, errors: Tensor, classes: int, costs: Tensor | None, weights: Tensor | None
    ) -> ClassCosts:
        """From (n,) costs of errors, and (n, classes) costs of predictions, if they are known."""
        every = errors[:, None].expand(-1, classes).double()
        every = every if costs is None else torch.maximum(every, costs)
        own = torch.arange(classes) == targets[:, None]
        return ClassCosts(targets, torch.where(own, 0.0, every), weights)

    @staticmethod
    def joined(parts: Sequence[ClassCosts | None]) -> ClassCosts | None:
        """Join those of disjoint samples that count alike; None if some have none."""
        known = [part for part in parts if part is not None and part.weights is None]
        if len(known) < len(parts) or len({part.classes for part in known}) != 1:
            return None
        return ClassCosts(
            *(torch.cat([getattr(part, name) for part in known]) for name in ("targets", "costs"))
        )

    @property
    def classes(self) -> int:
        return self.costs.shape[1]

    @cached_property
    def shares(self) -> Tensor:
        """Return (classes,) lower bounds on p; 0 for labels that do not occur."""
        masses = torch.ones(len(self.targets)).double() if self.weights is None else self.weights.double()
        totals = torch.zeros(self.classes, dtype=torch.float64).index_add_(0, self.targets, masses)
        return down(totals / len(self.targets), slack(4 * len(self.targets)))

    def group(self, name: str, label: int) -> Tensor:
        """(classes,) the labels of the rows of a rate: "recall" or "fpr" of a label, which must occur."""
        if name not in ("recall", "fpr") or not 0 <= label < self.classes:
            raise Refused(
                f"a rate is the recall or fpr of one of {self.classes} labels; got {name} of {label}"
            )
        own = torch.arange(self.classes) == label
        group = own if name == "recall" else ~own
        if not float(self.shares[group].sum()) > 0:
            raise Refused(f"no sample has a label that counts for the {name} of {label}")
        return group

    def matrix(self, name: str, label: int = 0) -> Tensor:
        """(classes, classes) C of 1 − recall, of fpr, or of "balanced_error"; rounded up."""
        wrong = ~torch.eye(self.classes, dtype=torch.bool)
        if name == "balanced_error":
            present = self.shares > 0
            each = torch.where(present, up(1 / (present.sum() * self.shares), FEW), 0.0)[:, None]
        else:
            group = self.group(name, label)
            share = down(float(self.shares[group].sum()), slack(self.classes))
            each = (up(1 / share, FEW) * group.double())[:, None]
            wrong = wrong if name == "recall" else wrong & (torch.arange(self.classes) == label)
        return torch.where(wrong, each, 0.0)

    def gains(self, matrix: Tensor, gamma: float) -> Tensor:
        """Return (n,) upper bounds on max_k (C[y_i, k] − γκ_ik)."""
        fits = matrix.shape == (self.classes, self.classes) and bool((matrix.abs() <= _LARGEST).all())
        if not (fits and 0 <= gamma < math.inf and bool((self.costs >= 0).all())):
            raise Refused(
                f"a finite cost for each pair of {self.classes} labels, and gamma; got gamma = {gamma}"
            )
        prices, possible = matrix.double()[self.targets], torch.isfinite(self.costs)
        paid = gamma * torch.where(possible, self.costs, 0.0)
        gains = prices - paid + FEW * (prices.abs() + paid)
        # Where γκ overflows, predicting the label itself is better.
        return torch.where(possible & (paid < math.inf), gains, -math.inf).amax(1)

    def worst_cost(self, matrix: Tensor, rho: float, gamma: float) -> float:
        """Return an upper bound on the worst expected cost within ρ, by any γ ≥ 0."""
        return dual_bound({gamma: mean_up(self.gains(matrix, gamma), self.weights)}, rho)

    def worst_rate(self, name: str, label: int, rho: float, gamma: float) -> float:
        """Bound 1 − recall, the false-positive rate or the balanced error within ρ from above, at most 1."""
        return min(1.0, self.worst_cost(self.matrix(name, label), rho, gamma))

    def groups(self, name: str, label: int) -> list[Tensor]:
        """(n,) bool for each group of rows of a rate."""
        labels = torch.eye(self.classes, dtype=torch.bool)[self.shares > 0]
        groups = list(labels) if name == "balanced_error" else [self.group(name, label)]
        return [group[self.targets] for group in groups]

    def failure_share(self, failure: float) -> float:
        """δ divided by the number of bounds that share it: two, of a share and a margin, for each group of
        rows. A group is the rows of one label, or of all other labels; of two labels these are the same."""
        return failure / (2 * self.classes * (1 if self.classes == 2 else 2))

    def population_rate(
        self, name: str, label: int, rho: float, gamma: float, claims: list[float], failure: float
    ) -> float:
        """Bound the rate within ρ of the population from above, at most 1, for independent draws.

        Args:
            claims: p̲ of each group; failure: δ, shared by the rates of all labels.
        """
        groups = self.groups(name, label)
        each = self.failure_share(failure)
        valid = 0 <= rho <= FARTHEST and gamma >= 0
        if self.weights is not None or len(claims) != len(groups) or not valid:
            raise Refused(
                "alike samples, a claimed share for each group, and rho and gamma at least 0 are needed"
            )
        worst = 0.0
        for rows, claim in zip(groups, claims, strict=True):
            count, paid = int(rows.sum()), self.costs[rows]
            share = clopper_pearson(count, len(rows), each, claim)
            own = self.targets[rows, None]
            paid = paid[:, label] if name == "fpr" else paid.scatter(1, own, math.inf).amin(1)
            within = down(gamma * len(groups) * share, FEW)
            worst += min(1.0, mean_up(error_gains(paid, within)) + dkw(count, each))
        return min(1.0, up(up(gamma * rho, FEW) + worst / len(groups), SOME))


def complement(rate: float) -> float:
    """Return 1 − x for a rate x ≥ 0, rounded down."""
    return 1.0 if rate == 0 else max(0.0, 1 - rate - slack(0))
