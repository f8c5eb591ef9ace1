"""``certify``: from a network and data to a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from certus.attacks.smallest import nearest_error
from certus.certificates.certificate import Certificate, Population
from certus.certificates.engine import Engine, Memory, Progress, make_grid
from certus.certificates.levels import Level, errs
from certus.certificates.problem import Data, Problem
from certus.costs import Cost, LabelCost, SquaredL2, SquaredLp, SquaredSup
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require, require_count
from certus.losses import Criterion, CrossEntropy, evaluation_mode
from certus.smoothness import SmoothnessBound

_CROSS_ENTROPY, _L2, _EVERYWHERE = CrossEntropy(), SquaredL2(), Unbounded()
_STEP = math.sqrt(2)  # ratio of neighbouring γ
_BELOW = 64  # how far below the Lipschitz rule's best γ the grid goes


def certify(
    model: nn.Module,
    data: Data,
    *,
    rho: float | Sequence[float],
    loss: Criterion = _CROSS_ENTROPY,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    confidence: float | None = None,
    clip: float | None = None,
    gammas: Sequence[float] | None = None,
    smoothness: SmoothnessBound | None = None,
    label_cost: LabelCost | None = None,
    method: str = "betting",
    balls: int = 6,
    refine: int = 1,
    attack_steps: int = 10,
    memory: Memory | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate of a network over all distributions within transport cost ρ of
    the data.

    Args:
        model: sequential, of layers with smoothness rules; kinked ones (ReLU) get the Lipschitz and radial
            rules only.
        data: a ``Split``, (inputs, targets), batches of both, or (inputs, None): then the network's own
            predictions are certified
            (eqn:certify-tests allows it): how stable they are, not how true.
        rho: the mean transport costs of interest, a mean *squared* distance. The certificate answers for
            others too.
        loss: the criterion; plain cross-entropy unless you say otherwise.
        confidence: 1 − δ; asserts that the data were drawn independently and that nothing was fitted or
            tuned on them.
        clip: B. Then min(ℓ, B) is what is certified. With ``confidence`` alone B = 2 ln K for the population
            statement:
            twice what guessing loses, so that few samples reach it, and small against √n.
        gammas: the grid Γ, fixed before seeing the data; by default it follows from the network and ρ alone.
        smoothness: bounds of your own; all that rests on them is called assumed.
        label_cost: a finite price for changing labels.
        method: of the population bound on the loss: "betting" (the tightest), "bernstein" or "hoeffding".
        balls: how many radii get smoothness bounds of their own around every sample; 0 for none.
        refine: rounds of further γ next to the best; they serve the bounds on the sample, never the
            population.
        attack_steps: of the search for nearest errors, which sharpens the attained error rate; 0 for none.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> model = nn.Sequential(nn.Linear(2, 3))
    >>> found = certify(model, (torch.randn(20, 2), None), rho=0.1)
    >>> bool(found.lower(0.1) <= found.bound(0.1))
    True
    """
    rhos = _levels("rho", rho)
    require(clip is None or 0 < clip < math.inf, "clip", "be positive and finite", clip)
    for name, count in (("balls", balls), ("refine", refine), ("attack_steps", attack_steps)):
        require_count(name, count, least=0)
    problem = Problem.of(model, data, loss, cost, domain, label_cost, smoothness)
    ceiling = _ceiling(problem, confidence, clip)
    chosen = (
        tuple(sorted(_levels("gammas", gammas), reverse=True))
        if gammas
        else default_gammas(problem, rhos, clip)
    )
    engine = Engine(problem, make_grid(problem, rhos, chosen, balls), clip, memory=memory, progress=progress)
    engine.prepare()
    levels = [engine.level(gamma) for gamma in chosen]
    people = None
    if confidence is not None:
        assert ceiling is not None
        people = Population.of(levels, confidence, ceiling, method, problem.classes is not None)
    levels = _refined(engine, levels, rhos, refine)
    floor = engine.error_floor
    start = engine.start if clip is None else engine.start.clamp_max(clip)
    return Certificate(
        rhos=rhos,
        levels=tuple(levels),
        start=float(start.mean()),
        error_floor=floor,
        error_found=None if floor is None else _errors_found(engine, levels, attack_steps),
        population=people,
        classes=problem.classes,
        growth=problem.growth,
        evidence="assumed" if problem.assumed else "proven",
        clip=clip,
        about={},
        source=engine,
    )


def default_gammas(problem: Problem, rhos: Sequence[float], clip: float | None) -> tuple[float, ...]:
    """Γ from the network and ρ alone: around G/(2√(gρ)), the best γ of the Lipschitz rule, and far below
    it."""
    slope, growth, root = problem.smoothness.lipschitz, problem.growth, problem.smoothness.output_lipschitz
    if not math.isfinite(slope) and clip is None:
        # Squared errors: no bound below γg = α², and a pole there.
        low, high = 1.02 * root**2 / growth, 512 * root**2 / growth
    else:
        if not math.isfinite(slope):
            assert clip is not None
            slope = 2 * math.sqrt(clip) * root  # of min(ℓ, B)
        low, high = (slope / (2 * math.sqrt(growth * rho)) for rho in (max(rhos), min(rhos)))
        low /= _BELOW
    if not 0 < low < math.inf:
        low = high = 1.0  # a network that does not depend on its inputs
    count = 1 + math.ceil(math.log(high / low) / math.log(_STEP))
    return tuple(high / _STEP**index for index in range(count))


def _refined(engine: Engine, levels: list[Level], rhos: Sequence[float], rounds: int) -> list[Level]:
    """Further γ: down until T̂ moves the data by the largest ρ, and between those that are best for some ρ."""
    if rounds == 0:
        return levels
    for _ in range(24):
        if float(levels[-1].transport_cost.mean()) >= max(rhos) or levels[-1].gamma < 1e-12:
            break
        levels.append(engine.level(levels[-1].gamma / 4))
    for turn in range(rounds):
        levels.sort(key=lambda level: -level.gamma)
        step = _STEP ** (0.5 ** (turn + 1))
        known = [level.gamma for level in levels]
        means = [float(level.bound.mean()) for level in levels]
        best = {min(known, key=lambda gamma: gamma * rho + means[known.index(gamma)]) for rho in rhos}
        wanted = {gamma * factor for gamma in best for factor in (step, 1 / step)}
        for gamma in sorted(wanted):
            if all(abs(gamma / level.gamma - 1) > 0.02 for level in levels):
                levels.append(engine.level(gamma))
    return sorted(levels, key=lambda level: -level.gamma)


def _errors_found(engine: Engine, levels: Sequence[Level], steps: int) -> Tensor:
    """(n,) the least cost at which an error was found, by the ascents and by a search of nearest errors."""
    problem = engine.problem
    found = torch.stack([level.error_cost for level in levels]).amin(0)
    norm = {SquaredL2: 2.0, SquaredSup: math.inf}.get(type(problem.cost))
    if isinstance(problem.cost, SquaredLp) and problem.cost.p in (1, 2):
        norm = problem.cost.p
    logistic = getattr(problem.family, "logistic", False)
    if steps > 0 and norm is not None and not logistic:
        places = []
        for batch in problem.batches():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # random starts, but the same ones whenever this is computed
                near = nearest_error(
                    batch.loss,
                    batch.inputs,
                    batch.targets,
                    norm=norm,
                    domain=batch.domain,
                    steps=steps,
                    rounds=6,
                )
            with torch.no_grad(), evaluation_mode():
                sure = errs(problem, near.inputs, batch.targets)
            costs = batch.cost.value(near.inputs, batch.inputs) * (1 + 1e-12)
            places.append(torch.where(sure, costs, math.inf))
        found = torch.minimum(found, torch.cat(places))
    if problem.label_cost is not None:
        found = found.clamp_max(problem.label_cost.price)
    return torch.where(engine.wrong, 0.0, found)


def _ceiling(problem: Problem, confidence: float | None, clip: float | None) -> float | None:
    """B of the population statement."""
    if confidence is None or clip is not None:
        return clip
    if problem.classes is None:
        raise ArgumentError(
            "`clip` must be given for a regression with `confidence`: a squared error has no bound; got None."
        )
    return 2 * math.log(problem.classes)


def _levels(name: str, values: float | Sequence[float]) -> tuple[float, ...]:
    """One or several positive numbers."""
    several = [values] if isinstance(values, int | float) else list(values)
    require(len(several) > 0, name, "hold at least one number", "none")
    for value in several:
        valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        require(valid, name, "be positive and finite", value)
    return tuple(float(value) for value in several)
