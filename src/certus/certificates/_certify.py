"""``certify``: read a model, and bound its worst case."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._progress import progress_bar
from certus._validation import checked_weights
from certus.bounds import SmoothnessBound
from certus.bounds.criteria import has_rule
from certus.bounds.equivalence import check_wrapper
from certus.bounds.estimators import read_estimator, read_samples
from certus.bounds.network import read_network
from certus.certificates.aggregate import DualAggregate
from certus.certificates.batching import Portions, Readable, provable_criterion, readable, require_one_draw
from certus.certificates.cache import DualValueCache
from certus.certificates.certificate import Certificate
from certus.certificates.custom_criteria import attack_criterion, criterion_name, model_outputs
from certus.certificates.engine import Engine, budget_range, default_gammas, make_grid, refine_gammas
from certus.certificates.error_costs import least_error_cost
from certus.certificates.linear import certify_linear
from certus.certificates.local_bounds import checked_class_weights
from certus.certificates.population import Population
from certus.certificates.progress import Work, total_work
from certus.certificates.proven.problem import Problem, gather
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import DataLike, RowEncoding, Samples, gather_samples
from certus.domains import Domain, Unbounded
from certus.errors import (
    LARGEST,
    LEAST,
    ArgumentError,
    LossError,
    UnreadableModelError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
    require_seed,
)
from certus.losses import Criterion, CrossEntropy, InferredCriterion, Logistic, inferred_criterion
from certus.rounding import TINY, mean_down, mean_up

_L2 = SquaredL2()
_CLOSED = 0.02  # a bracket as narrow as this share of its upper bound is not attacked further


def certify(
    model: Any,
    data: DataLike,
    *,
    rho: float | Sequence[float] | None = None,
    epsilon: float | Sequence[float] | None = None,
    criterion: Criterion | None = None,
    cost: Cost = _L2,
    domain: Domain | None = None,
    label_cost: LabelCost | None = None,
    labels: Literal["given", "predicted"] = "given",
    confidence: float | None = None,
    clip: float | None = None,
    gammas: Sequence[float] | None = None,
    class_weights: Sequence[float] | None = None,
    smoothness: SmoothnessBound | None = None,
    inequality: str | None = None,
    seed: int = 0,
    local_radii: int = 6,
    gamma_rounds: int = 1,
    attack_steps: int = 10,
    encoding: RowEncoding | None = None,
    cache: DualValueCache | None = None,
    progress: bool | Callable[[float], None] | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate over all distributions within transport cost ρ of the data.

    For every ρ, with the data's empirical distribution P̂_n and any γ ≥ 0,

        E_{P'} ℓ ≤ sup {E_P ℓ : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n φ̄_γ         [eqn:certificate, eqn:certify-tests]

    where φ̄_γ ≥ φ_γ = sup_z ℓ(z) − γ c(z, z₀) is proven sample by sample, and P' is a distribution that was
    found, by moving the samples with an ascent or an attack. The upper side is the least over a grid of γ.

    A model is read, never assumed: one that has a layer or an operation without a rule raises
    ``UnreadableModelError``, which names it. ``certify_smoothed`` certifies any model, with noise on its
    inputs.

    Args:
        model: a ``torch.nn.Module``, of layers or any that torch can export; networks with kinks (ReLU) get
            the Lipschitz and radial rules only. Or a linear model or perceptron of scikit-learn, alone or
            behind linear steps, which is read exactly (``certus.bounds.estimators``); where its score is
            linear and only ``rho``, ``epsilon``, ``criterion``, ``cost`` and ``labels`` are given, both sides
            are exact up to rounding.
        data: samples with inputs of shape (n, …) and n targets, weighted if they have weights: tensors,
            arrays or data frames of numbers as (inputs, targets); a torch ``Dataset`` or ``DataLoader``, or
            batches of both, which are read several times, a batch at a time, so that they need not fit into
            memory. (inputs, None) is as ``labels="predicted"``.
        rho: mean transport costs of interest, for squared L2 a mean *squared* distance; one or several. 0 is
            the sample itself. The certificate answers for others, too. By default those of every sample
            moved by ``epsilon``.
        epsilon: distances in the cost's norm, √c. ``Certificate.accuracies`` has, for each of them, the share
            of samples that no move of that length misleads. Not for a regression.
        criterion: cross-entropy for labels and squared error for numbers by default; torch's own criteria
            count sample by sample (``losses.as_criterion``). For any other criterion with one loss per sample
            only the error rate is proven, which does not depend on it.
        cost: the transport cost c.
        domain: the convex set Z that inputs stay in; all of space by default.
        label_cost: the cost of changing a label; by default labels never change.
        labels: "predicted" replaces the targets by the model's predictions on the unmoved inputs, as
            eqn:certify-tests allows; an error is then a prediction that changes.
        confidence: 1 − δ for bounds on the population that the data were drawn from. It asserts that they
            were drawn independently and that nothing was fitted or tuned on them.
        clip: B, to certify min(ℓ, B). With ``confidence`` alone, B = 2 ln K for the population: twice the
            loss of guessing, which few samples reach, and small against √n.
        gammas: the grid of γ, fixed before the data are seen; by default a function of the model and ρ.
        class_weights: w, one for each class, to certify w_y·ℓ. Error rates count all samples alike.
        smoothness: smoothness bounds of your own; whatever rests on them is labelled *assumed*.
        inequality: the concentration inequality for the population's loss: "betting" (the tightest, and the
            default), "bernstein" or "hoeffding".
        seed: of the order in which betting takes the samples; nothing else is random. Fix it beforehand: a
            seed that was chosen for its result proves nothing.
        local_radii: the number of radii with smoothness bounds of their own around every sample; 0 for none.
        gamma_rounds: rounds that add γ next to the best ones. They tighten the bounds on the sample, never
            those on the population.
        attack_steps: gradients per attack for the lower bounds: within cost ρ of every sample, and towards
            the nearest error; 0 for none.
        encoding: of the rows of a table. The worst case that is found then consists of rows: numbers are
            moved, and single categories changed. By default that of the samples.
        cache: stores finished dual values, so that an interrupted certification can resume.
        progress: False for no progress bar; a function is called with the share of the work that is done,
            from 0 to 1.

    Returns: a ``Certificate``, which answers for any ρ.

    >>> inputs, labels = torch.linspace(-2, 2, 40)[:, None], torch.arange(40) // 20
    >>> certificate = certify(nn.Linear(1, 2), (inputs, labels), rho=0.01)
    >>> certificate.lower(0.01) <= certificate.bound(0.01)
    True
    """
    rhos, epsilons = _checked_budgets(rho, epsilon, cost)
    rule = "be left out without `confidence`: it is how the population is bounded"
    require(inequality is None or confidence is not None, "inequality", rule, inequality)
    require(labels in ("given", "predicted"), "labels", "be 'given' or 'predicted'", repr(labels))
    clip = None if clip is None else require_number("clip", clip)
    gammas = None if gammas is None else require_numbers("gammas", gammas)
    if confidence is not None:
        require_confidence(confidence)
    require_seed(seed)
    for name, count in (
        ("local_radii", local_radii),
        ("gamma_rounds", gamma_rounds),
        ("attack_steps", attack_steps),
    ):
        require_count(name, count, least=0)
    domain = Unbounded() if domain is None else domain
    if not isinstance(model, nn.Module):
        try:
            model, data, criterion = _read_estimator(model, data, criterion)
        except UnreadableModelError as reason:
            raise _refusal(reason) from None
        others = (label_cost, confidence, clip, gammas, class_weights, smoothness, encoding, cache)
        if rho is not None and isinstance(domain, Unbounded) and all(option is None for option in others):
            exact = certify_linear(
                model, data, rho=rho, epsilon=epsilon, criterion=criterion, cost=cost, labels=labels
            )
            if exact is not None:
                return exact
    source = readable(data)
    if isinstance(source, tuple):
        labels = "predicted"
    if confidence is not None:
        require_one_draw(source)
    weights = _sample_weights(source, epsilon)
    criterion, class_weights = provable_criterion(criterion, source, class_weights, labels)
    if not isinstance(criterion, InferredCriterion) and not has_rule(criterion):
        rule = f"be left out with {criterion_name(criterion)}, of whose curvature nothing is known"
        for name, option in (
            ("confidence", confidence),
            ("smoothness", smoothness),
            ("class_weights", class_weights),
            ("weights", weights),
        ):
            require(option is None, name, rule, option)
        samples, encoding = _in_memory(source, labels, encoding)
        try:
            read_network(unwrapped(model), samples[0].shape[1:])
        except UnreadableModelError as reason:
            raise _refusal(reason, model, samples[0]) from None
        attained, outputs = attack_criterion(
            model, samples, rhos, criterion, cost, domain, clip=clip, steps=attack_steps, encoding=encoding
        )
        attained = replace(attained, epsilons=epsilons, labels=labels)
        if attained.classes is None:
            return attained
        errors = certify(
            model,
            source,
            rho=rhos,
            epsilon=epsilon,
            criterion=Logistic() if outputs == 1 else CrossEntropy(),
            cost=cost,
            domain=domain,
            label_cost=label_cost,
            labels=labels,
            gammas=gammas,
            local_radii=local_radii,
            gamma_rounds=0,
            attack_steps=attack_steps,
            encoding=encoding,
            progress=progress,
        )
        return replace(
            attained,
            proven_error_cost=errors.proven_error_cost,
            attained_error_cost=errors.attained_error_cost,
            assumptions=errors.assumptions,
            differing_predictions=errors.differing_predictions,
        )

    def ask(part: DataLike) -> Problem:
        nonlocal criterion, encoding
        if encoding is None and isinstance(part, Samples):
            encoding = part.encoding
        if isinstance(part, Samples) and labels == "predicted":
            part = (part.inputs, None)
        if isinstance(criterion, InferredCriterion):  # of data that are read here for the first time
            criterion = inferred_criterion(part.targets if isinstance(part, Samples) else None)
        assert criterion is not None
        network = unwrapped(model)
        try:
            problem = Problem.of(network, part, criterion, cost, domain, label_cost, smoothness)
        except UnreadableModelError as reason:
            raise _refusal(reason, model, gather(part)[0]) from None
        check_wrapper(model, network, problem.inputs)
        return replace(problem, encoding=encoding)

    with progress_bar(progress, "certifying") as report:
        portions = Portions.of(source, ask, predicted=labels == "predicted")
        problem = portions.question
        if epsilons and problem.classes is None:
            raise ArgumentError(
                f"`epsilon` must be left out for a regression: it has no errors; got {epsilon}."
            )
        counts = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
        ends = (1.0, 1.0) if counts is None else (float(counts.min()), float(counts.max()))
        ceiling = _ceiling(problem, confidence, clip, ends[1])
        grid_gammas = default_gammas(problem, rhos, clip, ends)
        if gammas is not None:
            grid_gammas = tuple(sorted(set(gammas), reverse=True))
        grid = make_grid(problem, rhos, [gamma / ends[1] for gamma in grid_gammas], local_radii)
        engine = Engine(portions, grid, clip, attack_steps, weights, cache=cache, class_weights=counts)
        work = Work(
            total_work(
                len(portions),
                engine.labels,
                0 if problem.claimed else len(grid.balls),
                grid_gammas,
                rhos,
                gamma_rounds=gamma_rounds,
                attacked=attack_steps > 0 and problem.classes is not None,
            ),
            report,
        )
        engine.progress = work.advance
        levels = engine.levels(grid_gammas)
        sample_values, attained_cost = engine.samples, None
        if sample_values.wrong is not None:
            searched = [engine.nearest()] if attack_steps > 0 else []
            costs = [level.attained_error_cost for level in levels]
            attained_cost = least_error_cost(problem, sample_values.wrong, [*costs, *searched])
        floor = sample_values.proven_error_cost
        start = sample_values.start if clip is None else sample_values.start.clamp_max(clip)
        population = None
        if confidence is not None:
            assert ceiling is not None
            population = replace(
                Population.of(
                    levels,
                    start,
                    None if floor is None or attained_cost is None else (floor, attained_cost),
                    confidence=confidence,
                    clip=ceiling,
                    inequality=inequality or "betting",
                    rhos=budget_range(rhos),
                    seed=seed,
                ),
                repeats=portions.repeats,
            )
        levels = refine_gammas(engine, levels, rhos, gamma_rounds)
        finish = sample_values.loss if clip is None else sample_values.loss.clamp_max(clip)
        certificate = Certificate(
            rhos=rhos,
            aggregates=tuple(DualAggregate.of(level, weights) for level in levels),
            attacks=(),
            clean_loss=(mean_down(start, weights), mean_up(finish, weights)),
            proven_error_cost=floor,
            # With γ that were added after seeing the sample: for it alone, never for the population.
            attained_error_cost=None
            if attained_cost is None
            else torch.stack([attained_cost, *(level.attained_error_cost for level in levels)]).amin(0),
            population=population,
            samples=len(portions),
            classes=problem.classes,
            unit_cost=problem.unit_cost,
            assumptions=problem.assumptions,
            clip=clip,
            about={},
            epsilons=epsilons,
            dual_values=tuple(levels),
            weights=weights,
            class_weights=None if counts is None else tuple(counts.tolist()),
            differing_predictions=engine.differing_predictions,
            labels=labels,
            source=engine,
        )
        if attack_steps > 0:
            certificate = _attacked(engine, certificate)
        certificate.curve()  # which raises where a bracket contradicts itself
        certificate.accuracies()
        problem.original_model.release()
        work.finish()
        return certificate


def _checked_budgets(
    rho: float | Sequence[float] | None, epsilon: float | Sequence[float] | None, cost: Cost
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ρ and the ε; without ρ, the cost of moving every sample by each ε."""
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    require(rho is not None or len(epsilons) > 0, "rho", "be given, or `epsilon`", rho)
    squares = tuple(cost.growth / 2 * (radius * radius) for radius in epsilons)
    rule = f"be 0, or have a square, as rho, between {LEAST:g} and {LARGEST:g}"
    sensible = all(square == 0 or LEAST <= square <= LARGEST for square in squares)
    require(sensible, "epsilon", rule, epsilon)
    return (squares if rho is None else require_numbers("rho", rho, zero=True)), epsilons


def _refusal(
    reason: UnreadableModelError, model: nn.Module | None = None, inputs: Tensor | None = None
) -> UnreadableModelError:
    """Return the error about a model that cannot be read, with the function that needs no reading.

    Raises ``LossError`` instead for a model whose output is no tensor.
    """
    if model is not None and inputs is not None:
        try:
            model_outputs(model, inputs[:1].double())
        except LossError:
            raise
        except Exception:  # anything that the forward may raise; the reader has named it
            pass
    if "certify_smoothed" in str(reason):
        return reason
    return UnreadableModelError(
        f"{str(reason).rstrip('.')}. certus.certify_smoothed(model, data, rho=…, sigma=…) certifies any "
        "model, with Gaussian noise on its inputs."
    )


def _read_estimator(
    model: Any, data: DataLike, criterion: Criterion | None
) -> tuple[nn.Module, Samples | tuple[Tensor, None], Criterion]:
    """Read a fitted estimator as a network, and the data as it takes them."""
    rule = "be a torch.nn.Module or a fitted estimator; certify_smoothed certifies any function"
    require(callable(getattr(model, "predict", None)), "model", rule, type(model))
    reading = read_estimator(model)
    inputs, targets, weights = read_samples(reading, data)
    samples: Samples | tuple[Tensor, None] = (inputs, None)
    if targets is not None:
        samples = Samples(inputs, targets, weights, data.encoding if isinstance(data, Samples) else None)
    return reading.network, samples, reading.criterion if criterion is None else criterion


def _in_memory(
    source: Readable, labels: str, encoding: RowEncoding | None
) -> tuple[tuple[Tensor, Tensor | None], RowEncoding | None]:
    """Read all inputs and targets, these None for predicted labels, and their encoding."""
    if isinstance(source, tuple):
        return source, encoding
    whole = gather_samples(source)
    encoding = whole.encoding if encoding is None else encoding
    return (whole.inputs, None if labels == "predicted" else whole.targets), encoding


def _sample_weights(data: object, epsilon: float | Sequence[float] | None) -> Tensor | None:
    """(n,) weights of the samples, with a mean of 1; None if they have none."""
    if not isinstance(data, Samples) or data.weights is None:
        return None
    require(epsilon is None, "epsilon", "be left out for a sample with weights", epsilon)
    return checked_weights(data.weights, len(data)).cpu()


def _attacked(engine: Engine, certificate: Certificate) -> Certificate:
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
        better, attained_cost = push.loss > certificate.lower(rho), certificate.attained_error_cost
        certificate = replace(
            certificate,
            attacks=(*certificate.attacks, push),
            attained_error_cost=None if attained_cost is None else torch.minimum(attained_cost, errors),
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
