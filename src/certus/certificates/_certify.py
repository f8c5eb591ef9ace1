"""``certify``: read a model, and bound its worst case.

A criterion without a rule gets lower bounds from attacks, and no upper bound on the loss.
Attacks run on the model itself, or on a copy of it in float64 if that runs. Their losses are lowered, and
their costs raised, by 10⁻⁹ of their size, because the rounding of such a criterion is unknown.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode, unwrapped
from certus._progress import progress_bar
from certus._validation import checked_weights
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.bounds import SmoothnessBound
from certus.bounds.criteria import check_targets, has_rule
from certus.bounds.encoded_frames import encode_frame
from certus.bounds.equivalence import check_wrapper
from certus.bounds.network import read_network
from certus.bounds.sklearn_models import read_estimator, read_samples
from certus.bounds.trees import is_tree_model, read_ensemble
from certus.certificates.batching import Portions, provable_criterion, readable, require_one_draw
from certus.certificates.cache import ProposalCache
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import AttackAggregate, DualAggregate
from certus.certificates.engine import (
    HELD,
    Engine,
    budget_range,
    default_gammas,
    make_grid,
    refine_gammas,
)
from certus.certificates.error_costs import AttainedErrors
from certus.certificates.linear import certify_linear
from certus.certificates.local_bounds import checked_class_weights
from certus.certificates.lower_bounds import into_ball, settle_rows
from certus.certificates.merging import join_certificates
from certus.certificates.parallel import Mapper, Question, one_thread, worker_count
from certus.certificates.population import Population
from certus.certificates.problem import BATCH, Problem, gather
from certus.certificates.progress import Work, total_work
from certus.certificates.trees import certify_trees, tree_loss
from certus.costs import Cost, LabelCost, SquaredL2, WeightedL2
from certus.costs.masked import masked_to
from certus.data import DataLike, RowEncoding, Samples, gather_samples
from certus.domains import Domain, Unbounded
from certus.errors import (
    LARGEST,
    LEAST,
    LossError,
    UnreadableModelError,
    UnsupportedError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
    require_seed,
)
from certus.kernel.rounding import MANY, TINY, down, mean_down, up
from certus.kernel.statement import Statement
from certus.losses import (
    BinaryCrossEntropy,
    Criterion,
    CrossEntropy,
    InferredCriterion,
    Logistic,
    MeanSquaredError,
    ModelLoss,
    evaluate_loss,
    inferred_criterion,
    is_labelled,
    predicted,
    require_tensor,
)

_L2 = SquaredL2()
_PROBE = 1.001  # radius of the attack that shows whether there are gradients
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
    cache: ProposalCache | None = None,
    width: float = 1.05,
    time_limit: float | None = None,
    deployment: Literal["float32"] | None = None,
    n_jobs: int = 1,
    checkpoint: str | Path | None = None,
    progress: bool | Callable[[float], None] | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate over all distributions within transport cost ρ of the data.

    For every ρ, with the data's empirical distribution P̂_n and any γ ≥ 0,

        E_{P'} ℓ ≤ sup {E_P ℓ : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n φ̄_γ         [eqn:certificate, eqn:certify-tests]

    where φ̄_γ ≥ φ_γ = sup_z ℓ(z) − γ c(z, z₀) is proven sample by sample, and P' is a distribution that an
    ascent or an attack found by moving the samples. The upper side is the least over a grid of γ.

    A model is read, never assumed: one that has a layer or an operation without a rule raises
    ``UnreadableModelError``, which names it. ``certify_smoothed`` certifies any model, with noise on its
    inputs.

    Args:
        model: a ``torch.nn.Module``, of layers or any that torch can export; networks with kinks (ReLU) get
            the Lipschitz and radial rules only. Or a linear model or perceptron of scikit-learn, alone or
            behind linear steps, which is read exactly (``certus.bounds.sklearn_models``); where its score is
            linear and only ``rho``, ``epsilon``, ``criterion``, ``cost`` and ``labels`` are given, both sides
            are exact up to rounding. A pipeline that begins with a column transformer with one-hot columns
            takes a data frame with words (``certus.bounds.encoded_frames``). Or trees: of scikit-learn,
            XGBoost, LightGBM or CatBoost, alone or in a pipeline (``certus.bounds.trees``).
        data: samples with inputs of shape (n, …) and n targets, weighted if they have weights: tensors,
            arrays or data frames of numbers as (inputs, targets); a torch ``Dataset`` or ``DataLoader``, or
            batches of both, which are read several times, a batch at a time, so that they need not fit into
            memory. (inputs, None) stands for ``labels="predicted"``.
        rho: mean transport costs of interest, one or several; for squared L2 a mean *squared* distance, and 0
            for the unmoved sample. The certificate also answers for other ρ. By default the costs of moving
            every sample by ``epsilon``.
        epsilon: distances in the cost's norm, √c. ``Certificate.accuracies`` has, for each of them, the share
            of samples that no move of that length misleads. Not for a regression.
        criterion: cross-entropy for labels and squared error for numbers by default; torch's own criteria are
            applied to each sample (``losses.as_criterion``). For any other criterion with one loss per sample
            only the error rate is proven, which does not depend on it.
        cost: the transport cost c.
        domain: the convex set Z that inputs stay in; all of space by default.
        label_cost: the cost of changing a label; by default labels never change.
        labels: "predicted" replaces the targets by the model's predictions on the unmoved inputs, as
            eqn:certify-tests allows; an error is then a prediction that changes.
        confidence: 1 − δ for bounds on the population that the data were drawn from. By setting it you assert
            that they were drawn independently and that nothing was fitted or tuned on them.
        clip: B, to certify min(ℓ, B). By default ℓ is certified for the sample, and min(ℓ, 2 ln K) for the
            population: 2 ln K is twice the loss of guessing.
        gammas: the grid of γ, fixed before the data are seen; by default a function of the model and ρ.
        class_weights: w, one for each class, to certify w_y·ℓ. Error rates count all samples alike.
        smoothness: smoothness bounds of your own; whatever rests on them is labelled *assumed*.
        inequality: the concentration inequality for the population's loss: "betting" (the tightest, and the
            default), "bernstein" or "hoeffding". From 65,536 samples on "hoeffding" is the default, the only
            one that needs no value of every sample.
        seed: seed of the order in which betting takes the samples; nothing else is random. Fix it beforehand:
            a seed that was chosen for its result proves nothing.
        local_radii: the number of radii with smoothness bounds of their own around every sample; 0 for none.
        gamma_rounds: rounds that add γ next to the best ones. They tighten the bounds on the sample, never
            those on the population.
        attack_steps: gradients per attack for the lower bounds: within cost ρ of every sample, and towards
            the nearest error; 0 for none.
        encoding: encoding of the rows of a table; by default that of the samples. With one, both bounds are
            over valid rows: numbers move; discrete columns change as a whole, at twice an input's weight.
        cache: stores proposed points, so that an interrupted certification can resume.
        width: for trees, the ratio of upper to lower error rate at which refinement ends.
        time_limit: for trees, the largest time of refinement, in seconds.
        deployment: "float32" for upper sides about the network as float32 computes it, in any order of
            summation: every margin is smaller by what such arithmetic can lose (``kernel.deployment``). For
            dense layers, and, by an assumption that is named, direct convolutions, with |·|, ReLU, sorting or
            pooling between them; for cross-entropy. By default they are about real arithmetic with the stored
            weights.
        n_jobs: number of worker processes; −1 for one per core. Each computes in one thread, so that the
            certificate is the same for any number, bit for bit. Within ``joblib.parallel_config`` its backend
            decides, such as that of a Dask cluster. The model stays in this process: workers get its layers
            as a file. They compare the model's own outputs with them at fewer points than one process does.
        checkpoint: folder for what was proposed at finished portions of the samples. The same call, with any
            ``n_jobs``, continues from it; remove the folder when the certificate is saved.
        progress: False for no progress bar; a function is called with the share of the work that is done,
            from 0 to 1.

    Returns: a ``Certificate``, which answers for any ρ.

    >>> inputs, labels = torch.linspace(-2, 2, 40)[:, None], torch.arange(40) // 20
    >>> certificate = certify(nn.Linear(1, 2), (inputs, labels), rho=0.01)
    >>> certificate.lower(0.01) <= certificate.bound(0.01)
    True
    """
    rhos, epsilons = _checked_budgets(rho, epsilon, cost)
    rule = "be left out without `confidence`: it applies to population bounds only"
    require(inequality is None or confidence is not None, "inequality", rule, inequality)
    require(deployment in (None, "float32"), "deployment", "be 'float32', or left out", repr(deployment))
    require(labels in ("given", "predicted"), "labels", "be 'given' or 'predicted'", repr(labels))
    clip = None if clip is None else require_number("clip", clip)
    gammas = None if gammas is None else require_numbers("gammas", gammas)
    if confidence is not None:
        require_confidence(confidence)
    require_seed(seed)
    jobs = worker_count(n_jobs)
    require(cache is None or checkpoint is None, "checkpoint", "be left out with `cache`", checkpoint)
    counts = {"local_radii": local_radii, "gamma_rounds": gamma_rounds, "attack_steps": attack_steps}
    for name, count in counts.items():
        require_count(name, count, least=0)
    domain = Unbounded() if domain is None else domain
    if not isinstance(model, nn.Module) and is_tree_model(model):
        unused: dict[str, object] = {"gammas": gammas, "smoothness": smoothness, "encoding": encoding}
        unused |= {
            "cache": cache,
            "deployment": deployment,
            "domain": None if isinstance(domain, Unbounded) else domain,
        }
        unused |= {"n_jobs": None if n_jobs == 1 else n_jobs, "checkpoint": checkpoint}
        for name, given in unused.items():
            require(given is None, name, "be left out for trees", given)
        return certify_trees(
            read_ensemble(model),
            data,
            rho=rhos,
            epsilon=epsilons or None,
            loss=tree_loss(criterion),
            cost=cost,
            label_cost=label_cost,
            labels=labels,
            confidence=confidence,
            clip=clip,
            class_weights=class_weights,
            inequality=inequality,
            width=width,
            time_limit=time_limit,
            seed=seed,
            progress=progress,
        )
    if not isinstance(model, nn.Module):
        try:
            frame = encode_frame(model, data)
        except UnreadableModelError as reason:
            raise _refusal(reason) from None
        if frame is not None:
            assert isinstance(data, tuple)
            rule = "be left out: the encoder of the pipeline tells it"
            require(encoding is None, "encoding", rule, encoding)
            model, data, encoding = frame.model, (frame.rows, data[1]), frame.encoding
            cost = WeightedL2(frame.weights) if cost is _L2 else cost
            domain = frame.domain if isinstance(domain, Unbounded) else domain
        try:
            model, data, criterion = _read_estimator(model, data, criterion)
        except UnreadableModelError as reason:
            raise _refusal(reason) from None
        others = (
            label_cost,
            confidence,
            clip,
            gammas,
            class_weights,
            smoothness,
            encoding,
            cache,
            deployment,
        )
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
    weights = None
    if isinstance(source, Samples) and source.weights is not None:
        require(epsilon is None, "epsilon", "be left out for a sample with weights", epsilon)
        weights = checked_weights(source.weights, len(source))
    criterion, class_weights = provable_criterion(criterion, source, class_weights, labels)
    attacked = None
    if not isinstance(criterion, InferredCriterion) and not has_rule(criterion):
        rule = f"be left out with {criterion_name(criterion)}, whose curvature has no known bound"
        options = {
            "confidence": confidence,
            "deployment": deployment,
            "smoothness": smoothness,
            "class_weights": class_weights,
        }
        for name, option in {**options, "weights": weights}.items():
            require(option is None, name, rule, option)
        whole: tuple[Tensor, Tensor | None]
        if isinstance(source, tuple):
            whole = source
        else:
            gathered = gather_samples(source)
            encoding = gathered.encoding if encoding is None else encoding
            whole = gathered.inputs, None if labels == "predicted" else gathered.targets
        try:
            read_network(unwrapped(model), whole[0].shape[1:])
        except UnreadableModelError as reason:
            raise _refusal(reason, model, whole[0]) from None
        attacked, outputs = attack_criterion(
            model, whole, rhos, criterion, cost, domain, clip=clip, steps=attack_steps, encoding=encoding
        )
        attacked = replace(attacked, epsilons=epsilons, labels=labels)
        if attacked.classes is None:
            return attacked
        # Errors do not depend on the criterion.
        criterion, clip, cache, gamma_rounds = Logistic() if outputs == 1 else CrossEntropy(), None, None, 0

    def ask(part: DataLike) -> Problem:
        nonlocal criterion, encoding
        if encoding is None and isinstance(part, Samples):
            encoding = part.encoding
        if isinstance(part, Samples) and labels == "predicted":
            part = (part.inputs, None)
        if isinstance(criterion, InferredCriterion):  # of data that are first read here
            criterion = inferred_criterion(part.targets if isinstance(part, Samples) else None)
        assert criterion is not None
        network = unwrapped(model)
        try:
            problem = Problem.of(network, part, criterion, cost, domain, label_cost, smoothness)
        except UnreadableModelError as reason:
            raise _refusal(reason, model, gather(part)[0]) from None
        check_wrapper(model, network, problem.inputs)
        problem = replace(problem, encoding=encoding, deployment=deployment)
        problem.require_covered()
        return problem

    with progress_bar(progress, "certifying") as report, one_thread():
        portions = Portions.of(source, ask, predicted=labels == "predicted")
        problem = portions.question
        rule = "be left out for a regression: it has no errors"
        require(not epsilons or problem.classes is not None, "epsilon", rule, epsilon)
        by_class = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
        ends = (1.0, 1.0) if by_class is None else (float(by_class.min()), float(by_class.max()))
        ceiling = clip
        if confidence is not None and clip is None:
            rule = "be given for a regression with `confidence`: a squared error is unbounded"
            require(problem.classes is not None, "clip", rule, None)
            ceiling = 2 * math.log(problem.classes or 1) * ends[1]
        grid_gammas = default_gammas(problem, rhos, clip, ends)
        if gammas is not None:
            grid_gammas = tuple(sorted(set(gammas), reverse=True))
        grid = make_grid(problem, rhos, [gamma / ends[1] for gamma in grid_gammas], local_radii)
        question = Question(problem, grid, clip, by_class, attack_steps)
        if checkpoint is not None:
            cache = ProposalCache(Path(checkpoint), question.digests() | {"samples": portions.sha256})
        stored = "Use checkpoint=FOLDER to keep what is finished."
        if cache is not None:
            stored = f"What is finished is stored in {cache.folder}: the same command continues."
        mapper, many = Mapper(question, jobs, stored), len(portions) > LARGE
        total = total_work(
            len(portions),
            question.labels,
            0 if problem.claimed else len(grid.balls),
            grid_gammas,
            rhos,
            gamma_rounds=0 if many else gamma_rounds,
            attacked=attack_steps > 0 and problem.classes is not None,
        )
        work = Work(total, report)
        plan = _Plan(
            *(rhos, epsilons, grid_gammas, gamma_rounds, confidence, ceiling),
            *(inequality or ("hoeffding" if many else "betting"), seed, labels),
        )
        if many and weights is None and attacked is None and plan.inequality == "hoeffding":
            certificate = _in_blocks(portions, mapper, cache, work, plan)
        else:
            engine = Engine(portions, mapper, weights, cache, work.advance)
            certificate = _solved(engine, plan)
        problem.original_model.release()
        work.finish()
        if attacked is None:
            return certificate
        return replace(
            attacked,
            statement=Statement.of(engine.samples.bounds, clip=attacked.clip),
            attained_error_cost=certificate.attained_error_cost,
            attained_label=certificate.attained_label,
            differing_predictions=certificate.differing_predictions,
            over_rows=certificate.over_rows,
        )


LARGE = 1 << 16  # samples, from which on only their distances to errors are kept
_BLOCK = 128  # batches that are certified together then, 65,536 samples


@dataclass(frozen=True)
class _Plan:
    """What is asked of the samples.

    Attributes:
        gammas: the grid Γ, fixed before the samples are seen.
        clip: B of the population, if there is a confidence.
    """

    rhos: tuple[float, ...]
    epsilons: tuple[float, ...]
    gammas: tuple[float, ...]
    gamma_rounds: int
    confidence: float | None
    clip: float | None
    inequality: str
    seed: int
    labels: Literal["given", "predicted"]


def _solved(engine: Engine, plan: _Plan, more: Sequence[float] = ()) -> Certificate:
    """The certificate of samples whose values at all γ fit into memory.

    Args:
        more: γ beside those of the grid.
    """
    question, weights, rhos = engine.question, engine.weights, plan.rhos
    problem, clip = engine.problem, question.clip
    levels = engine.levels((*plan.gammas, *more))
    fixed = levels[: len(plan.gammas)]
    sample_values, errors = engine.samples, None
    if sample_values.wrong is not None:
        searched = [engine.nearest()] if question.attack_steps > 0 else []
        price = math.inf if problem.label_cost is None else problem.label_cost.price
        own = [level.errors for level in fixed]
        errors = AttainedErrors.least([engine.wrong(), *own, *searched], price)
    start = sample_values.start if clip is None else sample_values.start.clamp_max(clip)
    population = None
    if plan.confidence is not None:
        assert plan.clip is not None
        population = Population.of(
            fixed,
            sample_values._replace(start=start),
            None if errors is None else errors.cost,
            confidence=plan.confidence,
            clip=plan.clip,
            inequality=plan.inequality,
            rhos=budget_range(rhos),
            seed=plan.seed,
        )
        population = replace(population, repeats=engine.portions.repeats)
    levels = sorted(refine_gammas(engine, levels, rhos, plan.gamma_rounds), key=lambda level: -level.gamma)
    # With γ that were added after seeing the sample: for it alone, never for the population.
    if errors is not None:
        errors = AttainedErrors.least([errors, *(level.errors for level in levels)])
    by_class = question.class_weights
    certificate = Certificate(
        statement=Statement.of(
            sample_values.bounds,
            [level.bounds for level in levels],
            weights=weights,
            clip=clip,
            population=None if population is None else population.upper,
        ),
        rhos=rhos,
        aggregates=tuple(DualAggregate.of(level, weights) for level in levels),
        attained_clean_loss=mean_down(start, weights),
        attained_error_cost=None if errors is None else errors.cost,
        attained_label=None if errors is None else errors.label,
        population=population,
        classes=problem.classes,
        epsilons=plan.epsilons,
        dual_values=tuple(levels),
        class_weights=None if by_class is None else tuple(by_class.tolist()),
        differing_predictions=engine.differing_predictions,
        over_rows=problem.kernel.columns is not None,
        deployment=problem.deployment,
        labels=plan.labels,
        source=engine,
    )
    if question.attack_steps > 0:
        certificate = _with_attacks(engine, certificate)
    certificate.curve()  # which raises where a bracket contradicts itself
    certificate.accuracies()
    return certificate


def _in_blocks(
    portions: Portions, mapper: Mapper, cache: ProposalCache | None, work: Work, plan: _Plan
) -> Certificate:
    """The certificate of many samples, block by block: of each block, means and distances to errors remain.

    The first block, whose local bounds are kept, decides which γ are added to the grid.
    """
    first, parts = max(1, HELD // portions.factor), list[Certificate]()
    more: tuple[float, ...] = ()
    for block in portions.blocks(first, max(1, _BLOCK // portions.factor)):
        engine = Engine(block, mapper, None, cache, work.advance, keeps=not parts)
        rounds = 0 if parts else plan.gamma_rounds
        part = _solved(engine, replace(plan, gamma_rounds=rounds), more)
        if not parts:
            more = tuple(line.gamma for line in part.aggregates if line.gamma not in plan.gammas)
        parts.append(replace(part, dual_values=(), source=None))
    joined = join_certificates(parts)
    population = joined.population
    if population is not None:
        population = replace(population, repeats=portions.repeats)
    source = Engine(portions, mapper, None, cache, keeps=False)
    certificate = replace(joined, population=population, source=source)
    certificate.curve()
    certificate.accuracies()
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
    """Return the error for a model that cannot be read; it recommends ``certify_smoothed``.

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


def _with_attacks(engine: Engine, certificate: Certificate) -> Certificate:
    """Add attacks within cost ρ of every sample, widest bracket first, until one raises no lower bound.

    Where the inner problem is concave no attack can: the ball around every sample is part of the transport
    ball.
    """

    def width(rho: float) -> float:
        bracket = certificate.bracket(rho)
        return (bracket.loss_high - bracket.loss_low) / max(bracket.loss_high, TINY)

    widths = {rho: width(rho) for rho in certificate.rhos if rho > 0}
    for rho in sorted(widths, key=lambda rho: -widths[rho]):
        if widths[rho] <= _CLOSED:
            break
        push, errors = engine.push(rho)
        better = push.loss > certificate.lower(rho)
        cost, label = certificate.attained_error_cost, certificate.attained_label
        if cost is not None and label is not None:
            cost, label = AttainedErrors.least([AttainedErrors(cost, label), errors])
        certificate = replace(
            certificate,
            attacks=(*certificate.attacks, push),
            attained_error_cost=cost,
            attained_label=label,
        )
        if not better:
            break
    return certificate


def criterion_name(criterion: Criterion) -> str:
    """Return the name of a criterion's class, or of a function."""
    return getattr(criterion, "__name__", type(criterion).__name__)


def attack_criterion(
    model: nn.Module,
    data: tuple[Tensor, Tensor | None],
    rhos: Sequence[float],
    criterion: Criterion,
    cost: Cost,
    domain: Domain,
    *,
    clip: float | None,
    steps: int,
    encoding: RowEncoding | None = None,
) -> tuple[Certificate, int]:
    """Attack a model within each ρ of the data, to bound its worst loss from below.

    Attacks climb a copy of the model in float64; the losses that count are those of the model itself.

    Args:
        data: inputs (n, …) and n targets; None for the model's predictions.
        encoding: encoding of the rows of a table, of which only numbers move.

    Returns: a certificate without upper bounds and without errors, and the number of the model's outputs.
    """
    inputs, targets = gather(data)
    if encoding is not None and not encoding.plain:
        movable = masked_to(cost, encoding.movable())
        steps, cost = (0, cost) if movable is None else (steps, movable)
    network, dtype = _in_double(unwrapped(model), inputs[:1])
    loss, origin = ModelLoss(network, criterion), inputs.to(dtype)
    if targets is not None and isinstance(criterion, BinaryCrossEntropy):
        targets = check_targets(targets.flatten(), len(inputs), 2)
    outputs = model_outputs(model, origin)
    labelled = targets is None or is_labelled(criterion, targets)
    labelled = labelled and not isinstance(criterion, MeanSquaredError)
    if targets is None and not labelled:
        raise UnsupportedError("A regression has no predicted labels to certify: give `data` with targets.")
    targets = predicted(outputs) if targets is None else targets

    def losses(points: Tensor) -> Tensor:
        values = evaluate_loss(criterion, model_outputs(model, points), targets).double()
        return values if clip is None else values.clamp_max(clip)

    start = losses(origin)
    try:
        GradientAttack(_PROBE, 2.0, 1)(loss, origin[:1], targets[:1])
        differentiable = True
    except LossError:
        differentiable = False
    attacks = []
    for rho in sorted({rho for rho in rhos if rho > 0}) if differentiable and steps > 0 else []:
        parts = zip(origin.split(BATCH), targets.split(BATCH), strict=True)
        points = torch.cat([_attacked(loss, *part, rho, cost, domain, steps) for part in parts])
        if encoding is not None:
            points = settle_rows(encoding, points, origin, domain)
        values, costs = losses(points), up(cost.value(points.double(), inputs), MANY)
        better = (values > start) & (costs <= rho)
        mean_cost = float(up(torch.where(better, costs, 0.0).mean(), MANY))
        attacks.append(
            AttackAggregate(rho, min(mean_cost, rho), _mean_down(torch.where(better, values, start)))
        )
    reason = (
        f"The curvature of {criterion_name(criterion)} has no known bound, so its loss has no upper bound."
    )
    if labelled:
        reason += " The error rate does not depend on it."
    if not differentiable:
        reason += (
            " The model is not differentiable, so no attack was run: the lower bound is the loss on the "
            "unmoved data."
        )
    width = outputs.flatten(1).shape[1]
    certificate = Certificate(
        statement=Statement(samples=len(inputs), unit_cost=cost.growth / 2, clip=clip),
        rhos=tuple(rhos),
        aggregates=(),
        attacks=tuple(attacks),
        attained_clean_loss=_mean_down(start),
        classes=max(2, width) if labelled else None,
        no_proof=reason,
    )
    return certificate, width


def _in_double(model: nn.Module, example: Tensor) -> tuple[nn.Module, torch.dtype]:
    """A copy of the model in float64 on the CPU, in eval mode; the model itself if that does not run."""
    try:
        copied = copy.deepcopy(model).cpu().double().eval()
        with torch.no_grad():
            copied(example.clone())
        return copied, torch.float64
    except Exception:  # anything that a model of the user's may raise
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        return model, dtype


def model_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs in its own precision, in eval mode."""
    own = next((each for each in model.parameters() if each.is_floating_point()), inputs)
    with torch.no_grad(), eval_mode(model):
        outputs = [require_tensor(model(part.to(own, copy=True))) for part in inputs.split(BATCH)]
    return torch.cat(outputs).cpu().double()


def _attacked(
    loss: ModelLoss, origin: Tensor, targets: Tensor, rho: float, cost: Cost, domain: Domain, steps: int
) -> Tensor:
    """Run PGD in an L2 ball that contains the ball c ≤ ρ, then move back along the line until c ≤ ρ."""
    ball = cost.attack_ball(domain)
    scaled = ball.scale is not None
    radius = math.sqrt(2 * rho / cost.growth) / (1.0 if scaled else ball.floor)

    def pinned_loss(points: Tensor, labels: Tensor) -> Tensor:
        return loss(cost.restore_frozen(points, origin), labels)

    attack = GradientAttack(radius, 2.0 if scaled else ball.p, steps, domain=domain)
    points = attack(pinned_loss, domain.project(origin), targets)
    return into_ball(cost, domain, points, origin, rho, 4 * MANY)


def _mean_down(losses: Tensor) -> float:
    mean = float(losses.mean())
    return mean - MANY * abs(mean) if mean < 0 else down(mean, MANY)
