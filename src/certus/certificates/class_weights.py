"""A loss that counts by class: w_y·ℓ, near the sample as it is.

    sup {E_P w_y ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n w_y φ̄_{γ/w_y},

since sup_x wℓ(x) − γc(x, x₀) = w·φ_{γ/w}(x₀). The samples stay what they are, each as likely as before:
weights of *samples* are another thing, and change the distribution. Samples of one label share one w, so they
are solved together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from certus.certificates.levels import DEFAULT_ASCENT, PER_SAMPLE, Level
from certus.certificates.proven.constants import Grid
from certus.certificates.proven.problem import Problem
from certus.certificates.recall import probed_samples
from certus.certificates.surroundings import Samples, Surroundings, lowered
from certus.errors import require, require_numbers
from certus.inner import Maximizer
from certus.split import Split


def checked_class_weights(weights: object, classes: int | None) -> Tensor:
    """(classes,) as float64."""
    require(classes is not None, "class_weights", "be left out for regression", weights)
    found = require_numbers("class_weights", weights)
    rule = f"be {classes} numbers, one for each class"
    require(len(found) == classes, "class_weights", rule, f"{len(found)} of them")
    return torch.tensor(found, dtype=torch.float64)


def counted(losses: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """(n,) losses by the weights of their labels, rounded down."""
    return losses if weights is None else lowered(losses * weights[targets])


@dataclass(frozen=True, eq=False)
class ByLabel:
    """``Surroundings`` of samples whose losses count by their labels.

    Attributes:
        weights: (classes,) w.
        advance: told of the work that is done around them.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    weights: Tensor
    ascent: Maximizer = DEFAULT_ASCENT
    advance: Callable[[float], None] | None = None

    @cached_property
    def _groups(self) -> list[tuple[Tensor, Surroundings]]:
        """For each label that there is: where its samples are, and what is around them."""
        found = []
        for label in self.problem.targets.unique().tolist():
            index = (self.problem.targets == label).nonzero().flatten()
            scales = tuple(self.weights.roll(-label).tolist())
            few = self.problem.select(index)
            part = Surroundings(few, self.grid, self.clip, self.ascent, scales, self.advance)
            found.append((index, part))
        return found

    @cached_property
    def probe(self) -> tuple[Tensor, ByLabel]:
        """A few of the samples of each label, always the same ones."""
        index = torch.cat([each[probed_samples(len(each))] for each, _ in self._groups]).sort().values
        return index, replace(self, problem=self.problem.select(index), advance=None)

    @cached_property
    def samples(self) -> Samples:
        joined = Samples.joined([part.samples for _, part in self._groups])
        back = self._order
        floor, wrong = joined.error_floor, joined.wrong
        assert floor is not None  # there are labels
        assert wrong is not None
        return Samples(joined.loss[back], joined.start[back], floor[back], wrong[back])

    def level(self, gamma: float) -> tuple[Level, Split]:
        """w·φ̄_{γ/w}, and the points reached."""
        found = [part.level(gamma) for _, part in self._groups]
        joined, back = Level.joined([level for level, _ in found]), self._order
        level = Level(gamma, **{name: getattr(joined, name)[back] for name in PER_SAMPLE})
        inputs = torch.cat([points.inputs for _, points in found])[back]
        return level, Split(inputs, torch.cat([points.targets for _, points in found])[back])

    @property
    def _order(self) -> Tensor:
        """Where each sample is when the groups are put one behind the other."""
        return torch.cat([index for index, _ in self._groups]).argsort()
