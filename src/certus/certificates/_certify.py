"""``certify``: read a model, and bound its worst case.

A criterion without a rule gets lower bounds from attacks (``unproven_losses``), and no upper bound on the
loss; its errors are certified with the criterion of their labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._progress import progress_bar
from certus._validation import checked_weights
from certus.bounds import SmoothnessBound
from certus.bounds.criteria import has_rule
from certus.bounds.encoded_frames import read_frame
from certus.bounds.equivalence import check_wrapper
from certus.bounds.network import read_network
from certus.bounds.sklearn_models import read_estimator, read_samples, unwrapped_search
from certus.bounds.trees import is_tree_model, read_ensemble
from certus.certificates.batching import Portions, Readable, provable_criterion, readable, require_one_draw
from certus.certificates.cache import ProposalCache
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import DualAggregate
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
from certus.certificates.merging import join_certificates
from certus.certificates.parallel import Mapper, Question, one_thread, worker_count
from certus.certificates.population import Population
from certus.certificates.problem import Problem, gather
from certus.certificates.progress import Work, total_work
from certus.certificates.trees import certify_trees, tree_loss
from certus.certificates.unproven_losses import attack_criterion, criterion_name, model_outputs
from certus.costs import ColumnPrices, Cost, LabelCost, SquaredL2
from certus.data import DataLike, RowEncoding, Samples, gather_samples
from certus.domains import Domain, Unbounded
from certus.errors import (
    LARGEST,
    LEAST,
    LossError,
    UnreadableModelError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
    require_seed,
)
from certus.kernel.rounding import TINY, mean_down
from certus.kernel.statement import Statement
from certus.losses import (
    Criterion,
    CrossEntropy,
    InferredCriterion,
    Logistic,
    inferred_criterion,
)

_L2 = SquaredL2()
_CLOSED = 0.02  # a bracket as narrow as this share of its upper bound is not attacked further


def certify(
    model: Any,
    data: DataLike,
    *,
    rho: float | Sequence[float] | None = None,
    epsilon: float | Sequence[float] | None = None,
    criterion: Criterion | None = None,
    cost: Cost | ColumnPrices = _L2,
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
            are exact up to rounding. An estimator of ``certus.estimators`` is read in the same way. Pipelines
            with imputers and encoders take tables with words and gaps (``certus.bounds.encoded_frames``). Or
            trees: of scikit-learn, XGBoost, LightGBM or CatBoost, alone or in a pipeline
            (``certus.bounds.trees``). Of a fitted search, such as ``GridSearchCV``, its best model.
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
        cost: the transport cost c; squared L2 by default, and the cost that an estimator of certus was fitted
            with. For trees, and pipelines that encode the columns of a table, also ``ColumnPrices``. The
            default of such a pipeline without trees: 1 for another category, and for numbers the squared
            distance in the units of their scaler.
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
            over valid rows: numbers move; discrete columns change as a whole, at the sum of the
            weights of both values.
        cache: stores proposed points, so that an interrupted certification can resume.
        width: for trees, the ratio of upper to lower error rate at which refinement ends.
        time_limit: for trees, the largest time of refinement, in seconds.
        deployment: "float32" for upper sides about the network as float32 computes it, in any order of
            summation: every margin is smaller by what such arithmetic can lose (``kernel.deployment``). For
            dense layers, and, by an assumption that is named, direct convolutions, with ``Absolute``, ReLU,
            sorting or pooling between them; for cross-entropy. By default they are about real arithmetic with
            the stored weights.
        n_jobs: number of worker processes; −1 for one per core. Each computes in one thread, so that the
            certificate is the same for any number, bit for bit. Within ``joblib.parallel_config`` its backend
            decides, such as that of a Dask cluster. The model stays in this process: workers get its layers
            as a file. They compare the model's own outputs with them at fewer points than one process does.
        checkpoint: folder for what was proposed at finished portions of the samples. The same call, with any
            ``n_jobs``, continues from it; remove the folder when the certificate is saved.
        progress: False for no progress bar; a function is called with the share of the work that is done,
            from 0 to 1.

    Returns: a ``Certificate``, which answers for any ρ.

    >>> import torch
    >>> from torch import nn
    >>> inputs, labels = torch.linspace(-2, 2, 40)[:, None], torch.arange(40) // 20
    >>> certificate = certify(nn.Linear(1, 2), (inputs, labels), rho=0.01)
    >>> certificate.lower(0.01) <= certificate.bound(0.01)
    True
    """
    rhos, epsilons = _checked_budgets(rho, epsilon, cost)
    model = model if isinstance(model, nn.Module) else unwrapped_search(model)
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
        unused |= {"cache": cache, "domain": None if isinstance(domain, Unbounded) else domain}
        unused |= {"checkpoint": checkpoint, "deployment": deployment}
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
            jobs=jobs,
            seed=seed,
            progress=progress,
        )
    if isinstance(model, nn.Module):
        rule = "be a Cost, such as SquaredL2(): ColumnPrices are for trees, and pipelines with encoders"
        require(not isinstance(cost, ColumnPrices), "cost", rule, cost)
        assert not isinstance(cost, ColumnPrices)
    else:
        model, data, criterion, cost, domain, encoding = _read_estimator(
            model, data, criterion, cost, domain, encoding
        )
        table = data.encoding if isinstance(data, Samples) else None
        others = (label_cost, confidence, clip, gammas, class_weights, smoothness, encoding)
        plain = all(option is None for option in (*others, cache, deployment))
        plain = plain and (
            table is None or table.plain
        )  # else its rows are bounded tighter than all of space
        if rho is not None and isinstance(domain, Unbounded) and plain:
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
        require(epsilon is None, "epsilon", "be left out for weighted samples", epsilon)
        weights = checked_weights(source.weights, len(source))
    criterion, class_weights = provable_criterion(criterion, source, class_weights, labels)
    reader = _ProblemReader(
        model, criterion, cost, domain, label_cost, smoothness, encoding, labels, deployment
    )
    unproven = None
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
        unproven = reader.attack_instead(source, rhos, clip=clip, steps=attack_steps)
        unproven = replace(unproven, epsilons=epsilons, labels=labels)
        if unproven.classes is None:
            return unproven
        clip, cache, gamma_rounds = None, None, 0
    with progress_bar(progress, "certifying") as report, one_thread():
        portions = Portions.of(source, reader.problem, predicted=labels == "predicted")
        problem, many = portions.question, len(portions) > LARGE
        rule = "be left out for a regression: it has no errors"
        require(not epsilons or problem.classes is not None, "epsilon", rule, epsilon)
        by_class = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
        ends = (1.0, 1.0) if by_class is None else (float(by_class.min()), float(by_class.max()))
        ceiling = clip if confidence is None else _population_clip(clip, problem.classes, ends[1])
        chosen = default_gammas(problem, rhos, clip, ends) if gammas is None else gammas
        grid_gammas = tuple(sorted(set(chosen), reverse=True))
        grid = make_grid(problem, rhos, [gamma / ends[1] for gamma in grid_gammas], local_radii)
        question = Question(problem, grid, clip, by_class, attack_steps)
        if checkpoint is not None:
            cache = ProposalCache(Path(checkpoint), question.digests() | {"samples": portions.sha256})
        stored = "Use checkpoint=FOLDER to keep what is finished."
        if cache is not None:
            stored = f"What is finished is stored in {cache.folder}: the same command continues."
        total = total_work(
            len(portions),
            question.labels,
            0 if problem.claimed else len(grid.balls),
            grid_gammas,
            rhos,
            gamma_rounds=0 if many else gamma_rounds,
            attacked=attack_steps > 0 and problem.classes is not None,
        )
        mapper, work = Mapper(question, jobs, stored), Work(total, report)
        plan = _Plan(
            *(rhos, epsilons, grid_gammas, gamma_rounds, confidence, ceiling),
            *(inequality or ("hoeffding" if many else "betting"), seed, labels),
        )
        if many and weights is None and unproven is None and plan.inequality == "hoeffding":
            certificate = _in_blocks(portions, mapper, cache, work, plan)
        else:
            certificate = _solved(Engine(portions, mapper, weights, cache, work.advance), plan)
        problem.original_model.release()
        work.finish()
    return certificate if unproven is None else _with_errors(unproven, certificate)


LARGE = 1 << 16  # samples, from which on only their distances to errors are kept
_BLOCK = 128  # batches that are certified together then, 65,536 samples


@dataclass(frozen=True)
class _Plan:
    """Options of a certification, checked.

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


def _population_clip(clip: float | None, classes: int | None, weight: float) -> float:
    """Return B of the population: 2 ln K times the largest class weight by default."""
    rule = "be given for a regression with `confidence`: a squared error is unbounded"
    require(clip is not None or classes is not None, "clip", rule, None)
    return 2 * math.log(classes or 1) * weight if clip is None else clip


def _solved(engine: Engine, plan: _Plan, more: Sequence[float] = ()) -> Certificate:
    """The certificate of samples whose values at all γ fit into memory.

    Args:
        more: γ beside those of the grid.
    """
    question, weights, rhos = engine.question, engine.weights, plan.rhos
    problem, clip = engine.problem, question.clip
    dual_values = engine.dual_values((*plan.gammas, *more))
    fixed = dual_values[: len(plan.gammas)]
    sample_values, errors = engine.samples, None
    if sample_values.wrong is not None:
        searched = [engine.nearest()] if question.attack_steps > 0 else []
        price = math.inf if problem.label_cost is None else problem.label_cost.price
        own = [values.errors for values in fixed]
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
    dual_values = sorted(
        refine_gammas(engine, dual_values, rhos, plan.gamma_rounds), key=lambda values: -values.gamma
    )
    # With γ that were added after seeing the sample: for it alone, never for the population.
    if errors is not None:
        errors = AttainedErrors.least([errors, *(values.errors for values in dual_values)])
    by_class = question.class_weights
    certificate = Certificate(
        statement=Statement.of(
            sample_values.bounds,
            [values.bounds for values in dual_values],
            weights=weights,
            clip=clip,
            population=None if population is None else population.upper,
        ),
        rhos=rhos,
        aggregates=tuple(DualAggregate.of(values, weights) for values in dual_values),
        attained_clean_loss=mean_down(start, weights),
        attained_error_cost=None if errors is None else errors.cost,
        attained_label=None if errors is None else errors.label,
        population=population,
        classes=problem.classes,
        epsilons=plan.epsilons,
        dual_values=tuple(dual_values),
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
    rho: float | Sequence[float] | None,
    epsilon: float | Sequence[float] | None,
    cost: Cost | ColumnPrices,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ρ and the ε; without ρ, the cost of moving every sample by each ε."""
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    require(rho is not None or len(epsilons) > 0, "rho", "be given, or `epsilon`", rho)
    unit = 1.0 if isinstance(cost, ColumnPrices) else cost.growth / 2
    squares = tuple(unit * (radius * radius) for radius in epsilons)
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
    model: Any,
    data: DataLike,
    criterion: Criterion | None,
    cost: Cost | ColumnPrices,
    domain: Domain,
    encoding: RowEncoding | None,
) -> tuple[nn.Module, Samples | tuple[Tensor, None], Criterion, Cost, Domain, RowEncoding | None]:
    """Read a fitted estimator as a network, and the data as it takes them; a pipeline with encoders gives the
    encoding, too, and the cost and the domain where they are left out."""
    rule = "be a torch.nn.Module or a fitted estimator; certify_smoothed certifies any function"
    require(callable(getattr(model, "predict", None)), "model", rule, type(model))
    try:
        frame = read_frame(model, data)
        if frame is None:
            rule = "be a Cost, such as SquaredL2(): ColumnPrices are for trees, and pipelines with encoders"
            require(not isinstance(cost, ColumnPrices), "cost", rule, cost)
            reading = read_estimator(model)
            inputs, targets, weights = read_samples(reading, data)
            cost = reading.cost or cost if cost is _L2 else cost
        else:
            assert isinstance(data, tuple)
            rule = "be left out: the pipeline gives it"
            require(encoding is None, "encoding", rule, encoding)
            (read, table), weights = frame, None
            reading, inputs = read.reading, read.rows(table)
            targets = None if data[1] is None else reading.encoded(data[1])
            if isinstance(cost, ColumnPrices) or (cost is _L2 and not read.plain):
                cost = read.cost(cost if isinstance(cost, ColumnPrices) else None)
            if not read.plain:
                encoding = read.encoding
                domain = read.domain if isinstance(domain, Unbounded) else domain
    except UnreadableModelError as reason:
        raise _refusal(reason) from None
    samples: Samples | tuple[Tensor, None] = (inputs, None)
    if targets is not None:
        samples = Samples(inputs, targets, weights, data.encoding if isinstance(data, Samples) else None)
    criterion = reading.criterion if criterion is None else criterion
    assert not isinstance(cost, ColumnPrices)
    return reading.network, samples, criterion, cost, domain, encoding


@dataclass
class _ProblemReader:
    """Reads a model for the first samples that are certified.

    Attributes:
        criterion: of data that are read batch by batch, it is inferred from the first batch.
    """

    model: nn.Module
    criterion: Criterion
    cost: Cost
    domain: Domain
    label_cost: LabelCost | None
    smoothness: SmoothnessBound | None
    encoding: RowEncoding | None
    labels: Literal["given", "predicted"]
    deployment: Literal["float32"] | None

    def problem(self, part: DataLike) -> Problem:
        """Return the problem for these samples; raises ``UnreadableModelError``."""
        if self.encoding is None and isinstance(part, Samples):
            self.encoding = part.encoding
        if isinstance(part, Samples) and self.labels == "predicted":
            part = (part.inputs, None)
        if isinstance(self.criterion, InferredCriterion):
            self.criterion = inferred_criterion(part.targets if isinstance(part, Samples) else None)
        network, about = unwrapped(self.model), (self.criterion, self.cost, self.domain)
        try:
            problem = Problem.of(network, part, *about, self.label_cost, self.smoothness)
        except UnreadableModelError as reason:
            raise _refusal(reason, self.model, gather(part)[0]) from None
        check_wrapper(self.model, network, problem.inputs)
        problem = replace(problem, encoding=self.encoding, deployment=self.deployment)
        problem.require_covered()
        return problem

    def attack_instead(
        self, source: Readable, rhos: Sequence[float], *, clip: float | None, steps: int
    ) -> Certificate:
        """Attack a loss whose criterion has no rule; read on with a criterion of the same errors."""
        whole: tuple[Tensor, Tensor | None]
        if isinstance(source, tuple):
            whole = source
        else:
            gathered = gather_samples(source)
            self.encoding = gathered.encoding if self.encoding is None else self.encoding
            whole = gathered.inputs, None if self.labels == "predicted" else gathered.targets
        try:
            read_network(unwrapped(self.model), whole[0].shape[1:])
        except UnreadableModelError as reason:
            raise _refusal(reason, self.model, whole[0]) from None
        about = rhos, self.criterion, self.cost, self.domain
        certificate, outputs = attack_criterion(
            self.model, whole, *about, clip=clip, steps=steps, encoding=self.encoding
        )
        self.criterion = Logistic() if outputs == 1 else CrossEntropy()
        return certificate


def _with_errors(unproven: Certificate, proven: Certificate) -> Certificate:
    """Return a certificate whose loss has no upper bound, with the errors of another of the same samples."""
    assert isinstance(proven.source, Engine)
    return replace(
        unproven,
        statement=Statement.of(proven.source.samples.bounds, clip=unproven.clip),
        attained_error_cost=proven.attained_error_cost,
        attained_label=proven.attained_label,
        differing_predictions=proven.differing_predictions,
        over_rows=proven.over_rows,
    )


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
        attack, errors = engine.attack(rho)
        better = attack.loss > certificate.lower(rho)
        cost, label = certificate.attained_error_cost, certificate.attained_label
        if cost is not None and label is not None:
            cost, label = AttainedErrors.least([AttainedErrors(cost, label), errors])
        certificate = replace(
            certificate,
            attacks=(*certificate.attacks, attack),
            attained_error_cost=cost,
            attained_label=label,
        )
        if not better:
            break
    return certificate
