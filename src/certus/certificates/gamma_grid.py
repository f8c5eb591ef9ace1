"""Which γ are looked at: a grid fixed before any sample is seen, and more where the sample asks for them.

A bound γρ + E φ̄_γ holds at every γ, so the grid decides how close it is and never whether it holds. What is
said about the population rests on the fixed grid alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from certus.certificates.engine import Engine, span
from certus.certificates.levels import Level
from certus.certificates.lines import Line
from certus.certificates.proven.problem import Problem

_STEP = math.sqrt(2)  # ratio of neighbouring γ
_BELOW = 64  # how far below the Lipschitz rule's best γ the grid goes
_LEAST = 1e-12  # no γ below it is added
_MOST_ADDED = 64  # γ above the grid


def default_gammas(
    problem: Problem, rhos: Sequence[float], clip: float | None, weights: tuple[float, float] = (1.0, 1.0)
) -> tuple[float, ...]:
    """Γ from the network and ρ alone: around G/(2√(gρ)), the best γ of the Lipschitz rule, far below it, and
    up to where no label moves for what min(ℓ, B) can gain by it: B/price, with B = 2 ln K unless clipped.

    Args:
        weights: the least and the largest by which losses count.
    """
    slope, price, root = problem.smoothness.lipschitz, problem.unit_price, problem.smoothness.output_lipschitz
    if not math.isfinite(slope) and clip is None:
        # Squared errors: no bound below γg = α², and a pole there.
        low, high = 1.02 * root**2 / price, 512 * root**2 / price
    else:
        if not math.isfinite(slope):
            assert clip is not None
            slope = 2 * math.sqrt(clip) * root  # of min(ℓ, B)
        high, low = (slope / (2 * math.sqrt(price * rho)) for rho in span(rhos))
        low /= _BELOW
    if not 0 < low < math.inf:
        low = high = 1.0  # a network that does not depend on its inputs
    low, high = low * weights[0], high * weights[1]
    if problem.label_cost is not None:
        most = 2 * math.log(problem.label_cost.classes) * weights[1] if clip is None else clip
        high = max(high, most / problem.label_cost.price)
    count = 1 + math.ceil(math.log(high / low) / math.log(_STEP))
    return tuple(high / _STEP**index for index in range(count))


def refined_levels(engine: Engine, levels: list[Level], rhos: Sequence[float], rounds: int) -> list[Level]:
    """Further γ: up until none is best for a ρ, down until T̂ moves the data by the largest ρ, and between
    those that are best for some ρ.

    Up it goes for labels: what a label gains is bounded by no slope, and may take a γ of that over its price.
    """
    if rounds == 0:
        return levels
    least = span(rhos)[0]
    for _ in range(_MOST_ADDED):
        ends = [level.gamma * least + Line.of(level, engine.weights).bound for level in levels[:2]]
        if len(ends) < 2 or not ends[0] < ends[1]:
            break
        levels.insert(0, *engine.levels([levels[0].gamma * _STEP]))
    for _ in range(24):
        last = Line.of(levels[-1], engine.weights)
        if last.rho_hat >= span(rhos)[1] or last.gamma < _LEAST:
            break
        levels += engine.levels([levels[-1].gamma / 4])
    for turn in range(rounds):
        levels.sort(key=lambda level: -level.gamma)
        step = _STEP ** (0.5 ** (turn + 1))
        known = [level.gamma for level in levels]
        means = [Line.of(level, engine.weights).bound for level in levels]
        best = {min(known, key=lambda gamma: gamma * rho + means[known.index(gamma)]) for rho in rhos}
        wanted: list[float] = []
        for gamma in sorted(gamma * factor for gamma in best for factor in (step, 1 / step)):
            if all(abs(gamma / other - 1) > 0.02 for other in (*known, *wanted)):
                wanted.append(gamma)
        if wanted:
            levels += engine.levels(wanted)
    return sorted(levels, key=lambda level: -level.gamma)
