"""Attacks of rising strength on one model, as rows that a table, a file and a picture can use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from certus.attacks.balls import check_norm
from certus.attacks.gradient import default_step, fgm, ifgm, pgm
from certus.attacks.outcomes import Outcome, attack_data, worst_of
from certus.costs import Cost, SquaredL2
from certus.costs.masked import masked_to
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require, require_count
from certus.evidence import Evidence
from certus.losses import ModelLoss
from certus.perturbers import ERM, Perturber
from certus.split import Split
from certus.spoken import GRADIENT_ATTACKS, NORMS
from certus.surrogate import WRM, default_maximizer

ATTACKS = (*GRADIENT_ATTACKS, "wrm")
ATTACK_OPTIONS = {  # option → the attacks that take it; to others it means nothing
    "gamma": ("wrm",),
    "epsilon": GRADIENT_ATTACKS,
    "norm": GRADIENT_ATTACKS,
    "steps": ("ifgm", "pgm"),
    "step_size": ("ifgm", "pgm"),
    "restarts": ("pgm",),
}
WORST = "worst"
_UNUSED = {"fgm": ("restarts",), "ifgm": ("restarts",), "wrm": ("steps", "restarts")}


@dataclass(frozen=True)
class Trial:
    """One attack at one strength: ε for fgm, ifgm and pgm, γ_adv for wrm. All that decides the result.

    Attributes:
        step_size: None for the default, 2.5·ε/steps.
        clipped: whether moved inputs were kept in the data's domain.
    """

    attack: str
    norm: float | None
    epsilon: float | None
    gamma: float | None = None
    steps: int = 15
    step_size: float | None = None
    restarts: int = 1
    clipped: bool = True

    def __post_init__(self) -> None:
        legal = (*ATTACKS, WORST)
        require(self.attack in legal, "attack", f"be one of {', '.join(ATTACKS)}", repr(self.attack))
        for name in ("gamma", "epsilon", "norm", "step_size", "restarts"):
            value, default = getattr(self, name), getattr(Trial, name, None)
            used = value == default or self.attack in (*ATTACK_OPTIONS[name], WORST)
            require(used, name, f"be left out for the attack {self.attack}", value)
        if self.attack == "wrm":
            if self.gamma is None:
                raise ArgumentError("`gamma` must be given for the attack wrm; got None.")
            return
        if self.epsilon is None or self.norm is None:
            raise ArgumentError(
                f"`epsilon` and `norm` must be given for the attack {self.attack}; "
                f"got {self.epsilon} and {self.norm}."
            )
        require(0 <= self.epsilon < math.inf, "epsilon", "be finite and not negative", self.epsilon)
        check_norm(self.norm)
        require_count("steps", self.steps)
        require_count("restarts", self.restarts)
        if self.step_size is not None:
            valid = 0 <= self.step_size < math.inf
            require(valid, "step_size", "be finite and not negative", self.step_size)

    @property
    def step_taken(self) -> float | None:
        """The step size in the end; None for wrm, which finds its own."""
        if self.attack == "wrm":
            return None
        assert self.epsilon is not None
        if self.attack == "fgm":
            return self.epsilon
        return default_step(self.epsilon, self.steps) if self.step_size is None else self.step_size

    @property
    def strength(self) -> float:
        """What a sweep varies."""
        strength = self.gamma if self.attack == "wrm" else self.epsilon
        assert strength is not None
        return strength

    def perturber(self, domain: Domain, cost: Cost, free: Tensor | None = None) -> Perturber:
        """The attack itself, in the domain if it is clipped to it.

        Args:
            free: the coordinates that may move; all when None.
        """
        where = domain if self.clipped else Unbounded()
        if self.attack == "wrm":
            moving = cost if free is None else masked_to(cost, free)
            if moving is None:
                return ERM()
            cost = moving
            careful = default_maximizer(cost, where, tolerance=1e-3, max_gradients=30)
            return WRM(self.gamma, cost=cost, domain=where, maximizer=careful)
        require(self.attack in ATTACKS, "attack", f"be one of {', '.join(ATTACKS)}", repr(self.attack))
        assert self.epsilon is not None
        assert self.norm is not None
        if self.epsilon == 0:
            return ERM()
        if self.attack == "fgm":
            return replace(fgm(self.epsilon, self.norm, domain=where), free=free)
        if self.attack == "ifgm":
            step = ifgm(self.epsilon, self.norm, steps=self.steps, step_size=self.step_size, domain=where)
            return replace(step, free=free)
        attack = pgm(
            self.epsilon,
            self.norm,
            steps=self.steps,
            step_size=self.step_size,
            domain=where,
            restarts=self.restarts,
        )
        return replace(attack, free=free)


def sweep(
    loss: ModelLoss,
    data: Split,
    trials: Sequence[Trial],
    *,
    domain: Domain | None = None,
    cost: Cost | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[tuple[Trial, Outcome]]:
    """The outcome of every trial; where several attacks share a strength, then also the worst of them.

    Rows of a table with categories, gaps or dates (``Split.encoding``) move in their other numbers alone.
    """
    require(len(data) >= 2, "data", "have at least 2 samples, for intervals", len(data))
    done: list[tuple[Trial, Outcome]] = []
    where, price = domain or Unbounded(), cost or SquaredL2()
    free = None if data.encoding is None else data.encoding.attackable
    for trial in trials:
        attack = trial.perturber(where, price, free)
        done.append((trial, attack_data(loss, data, attack, seed=seed, progress=progress)))
    shared: dict[tuple[Any, ...], list[tuple[Trial, Outcome]]] = {}
    for trial, outcome in done:
        if trial.attack != "wrm":
            key = (trial.norm, trial.epsilon, trial.clipped)
            shared.setdefault(key, []).append((trial, outcome))
    for group in shared.values():
        if len(group) > 1:
            strongest = max((trial for trial, _ in group), key=lambda trial: (trial.steps, trial.restarts))
            done.append((replace(strongest, attack=WORST), worst_of([outcome for _, outcome in group])))
    return done


def as_row(trial: Trial, outcome: Outcome, confidence: float = 0.95) -> dict[str, Any]:
    """One line of a table or a JSON file; what the attack does not use is None."""
    error, loss = outcome.error(confidence), outcome.mean_loss(confidence)
    return {
        **asdict(trial),
        **dict.fromkeys(_UNUSED.get(trial.attack, ())),
        "step_size": trial.step_taken,
        "norm": next((name for name, p in NORMS.items() if p == trial.norm), None),
        "samples": len(outcome.loss),
        "error": None if error is None else asdict(error),
        "loss": asdict(loss),
        "rho_test": outcome.rho_test,
        "confidence": confidence,
        "evidence": Evidence.ATTAINED,
    }
