"""``certify`` without noise: from a network and data to a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._validation import checked_weights
from certus.bounds import SmoothnessBound
from certus.bounds.criteria import has_rule
from certus.bounds.equivalence import check_wrapper
from certus.certificates.aggregate import Line
from certus.certificates.attained_only import AttainedSide, attain
from certus.certificates.batching import Portions, Readable, readable, require_one_draw, some_targets
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import Level
from certus.certificates.engine import (
    Engine,
    Memory,
    Progress,
    default_gammas,
    make_grid,
    refined_levels,
    span,
)
from certus.certificates.local_bounds import checked_class_weights
from certus.certificates.population import Population
from certus.certificates.progress import Work, whole_work
from certus.certificates.proven.problem import Problem
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import DataLike, RowEncoding, Samples, gather_samples
from certus.domains import Domain, Unbounded
from certus.errors import (
    LARGEST,
    LEAST,
    ArgumentError,
    UnprovableError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
    require_seed,
)
from certus.losses import (
    BinaryCrossEntropy,
    Criterion,
    CrossEntropy,
    InferredCriterion,
    Logistic,
    MeanSquaredError,
    SquaredError,
    WeightedCrossEntropy,
    as_criterion,
    inferred_criterion,
)
from certus.rounding import TINY, mean_down, mean_up

_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_CLOSED = 0.02  # a bracket as narrow as this share of its upper side is left as it is


def certify_network(
    model: nn.Module,
    data: DataLike,
    *,
    rho: float | Sequence[float] | None = None,
    epsilon: float | Sequence[float] | None = None,
    criterion: Criterion | None = None,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    confidence: float | None = None,
    clip: float | None = None,
    gammas: Sequence[float] | None = None,
    smoothness: SmoothnessBound | None = None,
    label_cost: LabelCost | None = None,
    class_weights: Sequence[float] | None = None,
    inequality: str | None = None,
    seed: int | None = None,
    balls: int = 6,
    refine: int = 1,
    attack_steps: int = 10,
    encoding: RowEncoding | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate of a network over all distributions within transport cost ρ of
    the data.

    Args:
        model: any that torch can export; kinked ones (ReLU) get the Lipschitz and radial rules only. If it
            cannot be read, nothing is proven: the certificate has attained sides only, and ``no_proof`` says
            why.
        data: ``Samples``, by its weights if it has any; (inputs, targets) as tensors, arrays or frames of
            numbers; a torch ``Dataset`` or ``DataLoader``, or batches of both, which are read several times,
            a portion at a time, so that they need not fit into memory; or (inputs, None): then the
            network's own predictions are the labels (eqn:certify-tests allows it), and an error is a
            prediction that changes; ``Certificate.labels`` is "predicted".
        rho: the mean transport costs of interest, a mean *squared* distance; 0 is the sample itself. The
            certificate answers for others too. Left out, those of every sample moved by ``epsilon``.
        epsilon: distances in the cost's norm, √c. ``accuracies`` has, for each of them, the share of samples
            that no move of that length misleads. Not for a regression.
        criterion: cross-entropy for labels and squared error for numbers, when None; one of torch's own
            counts sample by sample (``losses.as_criterion``). Of any other that gives one loss per sample
            only the error rate is proven, which does not depend on it.
        confidence: 1 − δ; asserts that the data were drawn independently and that nothing was fitted or
            tuned on them.
        clip: a bound B: min(ℓ, B) is certified then. With ``confidence`` alone B = 2 ln K for the population
            statement: twice what guessing loses, so that few samples reach it, and small against √n.
        gammas: the grid Γ, fixed before seeing the data; by default it follows from the network and ρ alone.
        smoothness: bounds of your own; all that rests on them is called assumed.
        label_cost: a finite price for changing labels.
        class_weights: w, one for each class: then it is w_y·ℓ that is certified, near the data as they are;
            error rates count all samples alike.
        inequality: that bounds the population's loss: "betting" (the tightest, and the default), "bernstein"
            or "hoeffding".
        seed: of the order in which betting takes the samples, 0 by default; nothing else here is random. Fix
            it before you look: a seed that was chosen for its result proves nothing.
        balls: how many radii get smoothness bounds of their own around every sample; 0 for none.
        refine: rounds of further γ next to the best; they serve the bounds on the sample, never the
            population.
        attack_steps: gradients of the attacks that raise the attained sides beside the ascents: within
            cost ρ of every sample (from the widest bracket on, as long as it helps), and towards the
            nearest errors; 0 for none.
        encoding: of the rows of a table, which attained sides then consist of: numbers are moved, and single
            categories swapped. By default the encoding of the ``Samples``, or of all batches; other data
            are moved as points of a space.
        progress: told the share of the work that is done, from 0 to 1.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> model = nn.Sequential(nn.Linear(2, 3))
    >>> found = certify_network(model, (torch.randn(20, 2), None), rho=0.1)
    >>> bool(found.lower(0.1) <= found.bound(0.1))
    True
    """
    given, model = model, unwrapped(model)
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    require(rho is not None or len(epsilons) > 0, "rho", "be given, or `epsilon`", rho)
    rule = "be left out without `confidence`: it is how the population is bounded"
    for name, value in (("inequality", inequality), ("seed", seed)):
        require(value is None or confidence is not None, name, rule, value)
    if clip is not None:
        clip = require_number("clip", clip)
    if gammas is not None:
        gammas = require_numbers("gammas", gammas)
    if confidence is not None:
        require_confidence(confidence)
    if seed is not None:
        require_seed(seed)
    for name, count in (("balls", balls), ("refine", refine), ("attack_steps", attack_steps)):
        require_count(name, count, least=0)
    squares = tuple(cost.growth / 2 * (one * one) for one in epsilons)
    rule = f"be 0, or have a square, as rho, between {LEAST:g} and {LARGEST:g}"
    sensible = all(one == 0 or LEAST <= one <= LARGEST for one in squares)
    require(sensible, "epsilon", rule, epsilon)
    rhos = squares if rho is None else require_numbers("rho", rho, zero=True)
    source = readable(data)
    if confidence is not None:
        require_one_draw(source)
    weights = sample_weights(source, epsilon)
    criterion, class_weights = provable_criterion(criterion, source, class_weights)
    if not isinstance(criterion, InferredCriterion) and not has_rule(criterion):
        rule = f"be left out with {_name(criterion)}, of whose curvature nothing is known"
        for name, option in (
            ("confidence", confidence),
            ("smoothness", smoothness),
            ("class_weights", class_weights),
            ("weights", weights),
        ):
            require(option is None, name, rule, option)
        side = _attained_side(given, source, rhos, criterion, cost, domain, clip, attack_steps, encoding)
        attained = replace(
            _without_proof(side, rhos, clip, _no_rule(criterion, side)),
            epsilons=epsilons,
            labels=label_source(source),
        )
        if side.classes is None:
            return attained
        errors = certify_network(
            given,
            source,
            rho=rhos,
            epsilon=epsilon,
            criterion=Logistic() if side.outputs == 1 else CrossEntropy(),
            cost=cost,
            domain=domain,
            gammas=gammas,
            label_cost=label_cost,
            balls=balls,
            refine=0,
            attack_steps=attack_steps,
            progress=progress,
            encoding=encoding,
        )
        if errors.no_proof is not None:
            return replace(attained, no_proof=errors.no_proof)
        return replace(
            attained,
            error_floor=errors.error_floor,
            error_found=errors.error_found,
            assumptions=errors.assumptions,
            differing=errors.differing,
        )

    def ask(part: DataLike) -> Problem:
        nonlocal criterion, encoding
        if encoding is None and isinstance(part, Samples):
            encoding = part.encoding
        if isinstance(criterion, InferredCriterion):  # of data that are read here for the first time
            criterion = inferred_criterion(part.targets if isinstance(part, Samples) else None)
        assert criterion is not None
        question = Problem.of(model, part, criterion, cost, domain, label_cost, smoothness)
        check_wrapper(given, model, question.inputs)
        return replace(question, encoding=encoding)

    try:
        portions = Portions.of(source, ask)
    except UnprovableError as reason:
        if weights is not None or class_weights is not None:
            raise
        side = _attained_side(given, source, rhos, criterion, cost, domain, clip, attack_steps, encoding)
        unproven = _without_proof(side, rhos, clip, str(reason))
        return replace(unproven, epsilons=epsilons, labels=label_source(source))
    problem = portions.question
    if epsilons and problem.classes is None:
        raise ArgumentError(f"`epsilon` must be left out for a regression: it has no errors; got {epsilon}.")
    counts = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
    ends = (1.0, 1.0) if counts is None else (float(counts.min()), float(counts.max()))
    ceiling = _ceiling(problem, confidence, clip, ends[1])
    chosen = default_gammas(problem, rhos, clip, ends)
    if gammas is not None:
        chosen = tuple(sorted(set(gammas), reverse=True))
    grid = make_grid(problem, rhos, [gamma / ends[1] for gamma in chosen], balls)
    engine = Engine(portions, grid, clip, attack_steps, weights, memory=memory, class_weights=counts)
    balls = 0 if problem.claimed else len(grid.balls)
    attacked = attack_steps > 0 and problem.classes is not None
    planned = whole_work(len(portions), engine.labels, balls, chosen, rhos, refine=refine, attacked=attacked)
    work = Work(planned, progress)
    engine.progress = work.advance
    levels = engine.levels(chosen)
    found = None if problem.classes is None else _errors_found(engine, levels)
    known = engine.samples
    floor = known.error_floor
    start = known.start if clip is None else known.start.clamp_max(clip)
    people = None
    if confidence is not None:
        assert ceiling is not None
        people = replace(
            Population.of(
                levels,
                start,
                None if floor is None or found is None else (floor, found),
                confidence=confidence,
                clip=ceiling,
                inequality=inequality or "betting",
                rhos=span(rhos),
                seed=seed or 0,
            ),
            repeats=portions.repeats,
        )
    levels = refined_levels(engine, levels, rhos, refine)
    finish = known.loss if clip is None else known.loss.clamp_max(clip)
    certificate = Certificate(
        rhos=rhos,
        lines=tuple(Line.of(level, weights) for level in levels),
        pushes=(),
        start=(mean_down(start, weights), mean_up(finish, weights)),
        error_floor=floor,
        # With γ that were added after seeing the sample: for it alone, never for the population.
        error_found=None if found is None else torch.minimum(found, _least_cost(levels)),
        population=people,
        samples=len(portions),
        classes=problem.classes,
        unit_price=problem.unit_price,
        assumptions=problem.assumptions,
        clip=clip,
        about={},
        epsilons=epsilons,
        levels=tuple(levels),
        weights=weights,
        class_weights=None if counts is None else tuple(counts.tolist()),
        differing=engine.differing,
        labels=label_source(source),
        source=engine,
    )
    if attack_steps > 0:
        certificate = _pushed(engine, certificate)
    certificate.curve()  # which raises where a bracket contradicts itself
    certificate.accuracies()
    problem.original_model.release()
    work.finish()
    return certificate


def provable_criterion(
    criterion: Criterion | None, source: Readable, class_weights: Sequence[float] | None
) -> tuple[Criterion, Sequence[float] | None]:
    """The criterion as the bounds know it, if they do, and the weights of the classes that are part of it.

    That of data which are not in memory is inferred when they are read.
    """
    known = as_criterion(criterion, source.targets if isinstance(source, Samples) else None)
    match known:
        case InferredCriterion() if isinstance(source, Samples | tuple):
            return inferred_criterion(some_targets(source)), class_weights
        case MeanSquaredError():
            targets = some_targets(source)
            single = targets is not None and targets.numel() == len(targets)
            return (SquaredError() if single else known), class_weights
        case WeightedCrossEntropy(label_smoothing=0.0):
            weights, known = tuple(known.weights.double().tolist()), CrossEntropy()
        case BinaryCrossEntropy(1.0):
            return Logistic(), class_weights
        case BinaryCrossEntropy(positive_weight):
            weights, known = (1.0, positive_weight), Logistic()
        case _:
            return known, class_weights
    rule = "be left out where the criterion has weights of its own"
    require(class_weights is None, "class_weights", rule, class_weights)
    return known, weights


def _attained_side(
    model: nn.Module,
    source: Readable,
    rhos: tuple[float, ...],
    criterion: Criterion,
    cost: Cost,
    domain: Domain,
    clip: float | None,
    steps: int,
    encoding: RowEncoding | None,
) -> AttainedSide:
    whole = source if isinstance(source, tuple) else gather_samples(source)
    if encoding is None and isinstance(whole, Samples):
        encoding = whole.encoding
    return attain(model, whole, rhos, criterion, cost, domain, clip=clip, steps=steps, encoding=encoding)


def _name(criterion: Criterion) -> str:
    return getattr(criterion, "__name__", type(criterion).__name__)


def _no_rule(criterion: Criterion, side: AttainedSide) -> str:
    """Why a loss has no upper bound."""
    reason = f"Nothing is known of the curvature of {_name(criterion)}: its loss has no upper side."
    return reason if side.classes is None else f"{reason} The error rate does not depend on it."


def label_source(data: object) -> Literal["given", "predicted"]:
    """Whose labels are certified: (inputs, None) has those that the model predicts."""
    return "predicted" if isinstance(data, tuple) and data[1] is None else "given"


def sample_weights(data: object, epsilon: float | Sequence[float] | None) -> Tensor | None:
    """(n,) the weights that data have, with a mean of 1; None if they have none."""
    if not isinstance(data, Samples) or data.weights is None:
        return None
    require(epsilon is None, "epsilon", "be left out for a sample with weights", epsilon)
    return checked_weights(data.weights, len(data)).cpu()


def _without_proof(
    side: AttainedSide, rhos: tuple[float, ...], clip: float | None, reason: str
) -> Certificate:
    """What was attained, and no more."""
    if not side.attacked:
        reason += (
            " It has no gradients either, so no attack was run: attained is the loss on the unmoved data."
        )
    if side.caveat:
        reason += f" {side.caveat}"
    return Certificate(
        rhos=rhos,
        lines=(),
        pushes=side.pushes,
        start=(side.start, math.inf),
        error_floor=None,
        error_found=side.errors,
        population=None,
        samples=side.samples,
        classes=side.classes,
        unit_price=side.unit_price,
        assumptions=(),
        clip=clip,
        about={},
        no_proof=reason,
    )


def _errors_found(engine: Engine, levels: Sequence[Level]) -> Tensor:
    """(n,) the least cost at which an error was found, by the ascents and by a search of nearest errors."""
    wrong = engine.samples.wrong
    assert wrong is not None  # there are classes
    found = torch.where(wrong, 0.0, _least_cost(levels))
    if engine.attack_steps > 0:
        found = torch.minimum(found, engine.nearest())
    label_cost = engine.problem.label_cost
    return found if label_cost is None else found.clamp_max(label_cost.price)


def _least_cost(levels: Sequence[Level]) -> Tensor:
    """(n,) the least cost at which an error was found on the way to some T̂."""
    return torch.stack([level.error_cost for level in levels]).amin(0)


def _pushed(engine: Engine, certificate: Certificate) -> Certificate:
    """With attacks within cost ρ of every sample, from the widest bracket on, until one brings nothing.

    Where the inner problem is concave they cannot: a ball around every sample is part of the ball around all.
    """

    def width(rho: float) -> float:
        bracket = certificate.bracket(rho)
        return (bracket.loss_high - bracket.loss_low) / max(bracket.loss_high, TINY)

    widths = {rho: width(rho) for rho in certificate.rhos if rho > 0}
    for rho in sorted(widths, key=lambda rho: -widths[rho]):
        if widths[rho] <= _CLOSED:
            break
        push, errors = engine.push(rho)
        better, found = push.loss > certificate.lower(rho), certificate.error_found
        certificate = replace(
            certificate,
            pushes=(*certificate.pushes, push),
            error_found=None if found is None else torch.minimum(found, errors),
        )
        if not better:
            break
    return certificate


def _ceiling(problem: Problem, confidence: float | None, clip: float | None, weight: float) -> float | None:
    """B of the population statement, for losses that count by at most a weight."""
    if confidence is None or clip is not None:
        return clip
    if problem.classes is None:
        raise ArgumentError(
            "`clip` must be given for a regression with `confidence`: a squared error has no bound; got None."
        )
    return 2 * math.log(problem.classes) * weight
