"""Algorithm 1 (alg:thealg): one loop for every method.

    for each batch:   ẑ ← perturb(z),   θ ← Proj_Θ(θ − α ∇_θ ℓ(θ; ẑ))

The method is the only thing in which ERM, WRM and the other methods differ. With ``certified``, Proj_Θ
keeps the weights where L̄ ≤ (1 − 10⁻³)·sγ is proven: every step is inside the conditions of thm:convergence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from certus._eval_mode import loss_eval_mode, unwrapped
from certus._render import Lookable
from certus._validation import check_batch
from certus.bounds import SmoothnessBound
from certus.data import DataLike, Samples, as_samples
from certus.datasets import SplitDataset
from certus.errors import ArgumentError, CertusError, UnsupportedError, as_count, require
from certus.inner.methods import Method, MethodLike, as_method
from certus.losses import Criterion, ModelLoss, as_criterion, evaluate_loss, require_tensor
from certus.smoothing.sampling import Noise
from certus.training.calibration import Robustness, calibrate, measure_robustness
from certus.training.certified import CertifiedSet, make_guard
from certus.training.criterion_choice import default_criterion
from certus.training.loaders import Feed, Indexed, in_memory, make_feed, mix
from certus.training.metrics import EpochMetrics, Sums, clean_metrics, right_or_wrong
from certus.training.noise import NoisyLoss, fresh_noise, training_noise
from certus.training.optimizers import AnyOptimizer, make_optimizer
from certus.training.projections import Projection

_SCHEDULE = "such as lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)"
_FEW = 32  # samples that tell of their kind and shape, and at which certified training is checked


class DivergedError(CertusError):
    """The loss became NaN or infinite; no later state is written."""


ScheduleFactory = Callable[[Optimizer], LRScheduler]


@dataclass
class TrainingState:
    """All that changes while a model trains. A checkpoint must hold it to resume exactly.

    Attributes:
        epoch, step: the next step to take, and the epoch that it belongs to.
        sums: what has been measured in the present epoch; seconds: how long it has taken so far.
        history: the epochs that are complete.
        guard: to be called before the state is kept: proves what is promised of the weights, if anything is.
        finished: set by an observer after an epoch: no further one is wanted.
    """

    model: nn.Module
    optimizer: Optimizer
    schedule: LRScheduler | None
    method: Method
    epoch: int = 0
    step: int = 0
    sums: Sums = field(default_factory=Sums)
    seconds: float = 0.0
    history: list[EpochMetrics] = field(default_factory=list)
    guard: Callable[[], SmoothnessBound] | None = None
    finished: bool = False


class Observer:
    """What may be done between steps: nothing here; progress bars and checkpoints override."""

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        """Before the first step; may restore an earlier state in place.

        Args:
            steps: of each epoch; None for data that do not know their length.
        """

    def after_step(self, state: TrainingState) -> None:
        """After each step; ``state`` is then consistent."""

    def after_epoch(self, state: TrainingState) -> None:
        """After each epoch; ``state.history`` ends with it."""

    def measuring(self) -> None:
        """After the last epoch, before the passes that measure ρ̂."""


@dataclass(frozen=True)
class Fit(Lookable):
    """A trained model; ``print`` shows its epochs, ``plot`` draws them.

    Attributes:
        model: in eval mode; the one that was passed in.
        history: one entry per epoch.
        robustness: for WRM, ρ̂, φ and γ in one pass over the training data at the final θ; None otherwise.
        proof: of a certified training, the smoothness of the final θ, *proven* or *assumed*; else None.
    """

    model: nn.Module = field(repr=False)
    history: list[EpochMetrics]
    robustness: Robustness | None
    proof: SmoothnessBound | None = None


def fit(
    model: nn.Module,
    data: SplitDataset | DataLike,
    *,
    method: MethodLike | None = None,
    criterion: Criterion | None = None,
    epochs: int = 10,
    batch_size: int | None = None,
    optimizer: AnyOptimizer = None,
    schedule: ScheduleFactory | None = None,
    projection: Projection | None = None,
    certified: bool | float | CertifiedSet = False,
    augment: Callable[[Tensor], Tensor] | None = None,
    noise: float | Noise | None = None,
    weight_decay: float | Mapping[str, float] = 0.0,
    seed: int = 0,
    fabric: Fabric | None = None,
    observers: list[Observer] | None = None,
    progress: bool | None = None,
) -> Fit:
    """Train ``model`` by Algorithm 1. A bar shows in a terminal or a notebook; ``progress=False`` is silent.

    Args:
        model: trained in place. Give its weights a seed yourself. What ``torch.compile`` or
            ``DistributedDataParallel`` returned stands for the module inside.
        data: a ``SplitDataset``, or samples only (then nothing is measured between epochs): ``Samples``,
            (inputs, targets) as tensors, arrays or frames of numbers, a torch ``Dataset`` or ``DataLoader``,
            or a list of batches. Those of torch are read piece by piece, once in every epoch and at least
            once more to measure ρ̂; they need not fit into memory, and their transforms run. Inputs are taken
            in the model's precision. Where ``Samples`` has weights, each sample counts by its own.
        method: any method, or a function ``(loss, inputs, targets) -> moved inputs``; ``ERM()`` when None.
        criterion: cross-entropy for classes and squared error for regression, when None; one of torch's own
            counts sample by sample (``losses.as_criterion``).
        batch_size: samples of one step, over all processes; 128 when None. A loader has its own.
        optimizer: from parameter groups, such as ``lambda groups: torch.optim.SGD(groups, lr=0.1)``, or an
            optimizer of the model's parameters; Adam with lr 1e-3 when None.
        schedule: from the optimizer; steps once per epoch.
        projection: Proj_Θ, applied after each step.
        certified: keep L̄ ≤ (1 − 10⁻³)·sγ after each step, proven after each epoch and at the end. True for
            the γ and the cost of a WRM; a number for a γ of its own, as ERM needs; or a ``CertifiedSet``.
            Refuses networks that cannot be proven.
        augment: changes the inputs of each batch before anything else, such as ``RandomShift(1)``.
        noise: σ of Gaussian noise on the inputs, in the norm of the method's cost, fresh wherever the loss is
            looked at: for models that are certified with ``smoothing``. WRM then needs fixed steps.
        weight_decay: one number, or one for each layer by name.
        seed: decides the order of the batches and the randomness inside the model.
        fabric: devices, precision and processes; one CPU or the best accelerator present when None.
            MPS has no float64: where it is the best, a float64 model is trained on the CPU.

    A run is a function of its arguments: the same call gives the same weights, bit for bit, on one machine.
    For a ``DataLoader`` this holds if its order and its transforms draw from torch's own random numbers. It
    does not hold if they draw from a generator that is not seeded again for each call.
    """
    _check_arguments(model, schedule, projection, augment, fabric, observers or [])
    epochs, seed = as_count("epochs", epochs), as_count("seed", seed, least=0)
    method = as_method(method)
    fabric = fabric or one_device(model)
    # A compiled model trains as it is. Exchanging gradients is the fabric's task, not that of a wrapper.
    given, bare = model, unwrapped(model)
    if any(isinstance(part, DataParallel | DistributedDataParallel) for part in model.modules()):
        model = bare
    feed = make_feed(
        data.train if isinstance(data, SplitDataset) else data,
        bare,
        batch_size,
        seed,
        rank=fabric.global_rank,
        processes=fabric.world_size,
        device=fabric.device,
    )
    held_out = None
    if isinstance(data, SplitDataset):
        held_out = in_memory(data.calibration, bare, fabric.device)
    with torch.random.fork_rng():  # reading may draw
        few = feed.some(_FEW)
    criterion = default_criterion(few) if criterion is None else as_criterion(criterion, _targets(data))
    _check(bare, method, feed)
    chosen = make_optimizer(optimizer, bare, weight_decay)
    planned = None if schedule is None else schedule(chosen)
    if isinstance(planned, ReduceLROnPlateau):
        raise UnsupportedError("`schedule` must step by the epoch alone; ReduceLROnPlateau needs a metric.")
    made = schedule is None or isinstance(planned, LRScheduler)
    require(made, "schedule", f"make a schedule from the optimizer, {_SCHEDULE}", type(planned))
    state = TrainingState(bare, chosen, planned, method)
    # Fabric would compile again what was compiled, which fails if that was before it was imported.
    wrapped, chosen = fabric.setup(model, chosen, _reapply_compile=False)
    with (
        torch.random.fork_rng(),
        torch.no_grad(),
        loss_eval_mode(bare),
    ):  # fails if it cannot run
        evaluate_loss(ModelLoss(wrapped, criterion), few.inputs, few.targets)
    guard = make_guard(certified, bare, method, criterion, few)
    if guard is not None:
        require(
            projection is None, "projection", "be None in certified training, which has its own", projection
        )
        if fabric.world_size > 1 and any(isinstance(part, _BatchNorm) for part in model.modules()):
            raise UnsupportedError(
                "Certified training with batch normalisation runs in one process only: each process has its "
                f"own statistics, and would scale its own weights; got {fabric.world_size} processes."
            )
        projection, state.guard = guard, guard.prove
    # The ascent runs on the bare model: its passes are no business of a wrapper that synchronises gradients.
    loss, noisy = ModelLoss(model, criterion), training_noise(noise, method)
    seen = loss if noisy is None else NoisyLoss(model, criterion, noisy)
    with _bars(progress, fabric) as bars:
        watchers = [*(observers or []), *bars]
        with torch.random.fork_rng():
            for watcher in watchers:
                watcher.start(state, epochs, feed.steps)
            while state.epoch < epochs and not state.finished:
                began = time.perf_counter() - state.seconds
                model.train()
                method.train()
                for step, batch, whole in feed.epoch(state.epoch, first=state.step):
                    inputs, targets, weights = batch.inputs, batch.targets, batch.weights
                    if augment is not None:
                        inputs = augment(inputs)
                    known = {} if weights is None else {"weights": weights}  # a method may not take any
                    found = method.perturb(seen, inputs, targets, **known)
                    assert found.targets is not None
                    moved = found.inputs if noisy is None else found.inputs + fresh_noise(noisy, found.inputs)
                    outputs = require_tensor(wrapped(moved))
                    losses = criterion(outputs, found.targets)
                    if not torch.isfinite(losses).all():
                        check_batch(batch.inputs, batch.targets)  # or the data are to blame
                        raise DivergedError(
                            f"The training loss is not finite in epoch {state.epoch + 1}, step {step + 1}: "
                            "a smaller learning rate, or a projection of the weights, may help."
                        )
                    # Averaging over processes, as a wrapper does, must give the mean over the whole batch.
                    summed = losses.sum() if weights is None else (losses * weights.to(losses)).sum()
                    fabric.backward(summed * (fabric.world_size / whole))
                    chosen.step()
                    chosen.zero_grad()
                    if projection is not None:
                        projection(bare)
                    told = right_or_wrong(outputs, found.targets)
                    state.sums.add(weights, loss=losses, **told, **found.measured)
                    state.step, state.seconds = step + 1, time.perf_counter() - began
                    for watcher in watchers:
                        watcher.after_step(state)
                if state.schedule is not None:
                    state.schedule.step()
                state.history.append(_close_epoch(state, loss, held_out, fabric))
                state.epoch, state.step, state.sums, state.seconds = state.epoch + 1, 0, Sums(), 0.0
                for watcher in watchers:
                    watcher.after_epoch(state)
        given.eval()
        method.train(False)
        robustness, proof = None, None if guard is None else guard.settle()
        if method.penalty is not None:
            for watcher in watchers:
                watcher.measuring()
            find = measure_robustness if method.penalty.rho is None else calibrate
            with torch.random.fork_rng():
                torch.manual_seed(mix(seed, epochs, 0, fabric.global_rank))
                robustness = find(method.penalty, seen, feed, feed.batch_size, fabric)
    return Fit(given, state.history, robustness, proof)


def _check_arguments(
    model: object,
    schedule: object,
    projection: object,
    augment: object,
    fabric: object,
    observers: Iterable[object],
) -> None:
    """Refuse what has not the kind that ``fit`` takes."""
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
    for name, value, form in (
        ("schedule", schedule, f"a function of the optimizer, {_SCHEDULE}"),
        ("projection", projection, "a function of the model, such as certus.training.WeightBall(10.0)"),
        ("augment", augment, "a function of the inputs, such as certus.training.RandomJitter(1)"),
    ):
        require(value is None or callable(value), name, f"be {form}", repr(value))
    require(fabric is None or isinstance(fabric, Fabric), "fabric", "be a lightning_fabric.Fabric", fabric)
    watching = isinstance(observers, Iterable) and all(isinstance(each, Observer) for each in observers)
    require(watching, "observers", "be a list of certus.training.Observer objects", observers)


def one_device(model: nn.Module) -> Fabric:
    """The best accelerator, or the CPU; the CPU too for a float64 model where MPS would be the best."""
    fabric = Fabric(devices=1)
    wide = any(values.dtype == torch.float64 for values in (*model.parameters(), *model.buffers()))
    return Fabric(accelerator="cpu", devices=1) if wide and fabric.device.type == "mps" else fabric


def _targets(data: SplitDataset | DataLike) -> Tensor | None:
    """Those of all samples to train on, if they are in memory."""
    samples = as_samples(data.train if isinstance(data, SplitDataset) else data)
    return samples.targets if isinstance(samples, Samples) else None


@contextmanager
def _bars(progress: bool | None, fabric: Fabric) -> Iterator[list[Observer]]:
    """A bar, in one of the processes, unless none is wanted."""
    if progress is False or fabric.global_rank != 0:
        yield []
        return
    from certus.training.callbacks import ProgressBar  # which observes a training

    with ProgressBar() as bar:
        yield [bar]


def _check(model: nn.Module, method: Method, feed: Feed) -> None:
    """What would otherwise fail in the middle, or at the end, of a long training."""
    if method.penalty is not None and isinstance(method.penalty.gamma, Tensor):
        raise ArgumentError("`gamma` must be one number to train with; got a tensor.")
    norms = [name for name, part in model.named_modules() if isinstance(part, _BatchNorm)]
    if norms and isinstance(feed, Indexed) and feed.order.smallest_share == 1:
        raise ArgumentError(
            f"`batch_size` must not leave a batch of one sample to `{norms[0]}`, which normalises over "
            f"the batch; {feed.count} samples in batches of {feed.batch_size} do."
        )


def _close_epoch(
    state: TrainingState, loss: ModelLoss, held_out: Samples | None, fabric: Fabric
) -> EpochMetrics:
    means = state.sums.means(fabric)
    clean = {} if held_out is None else clean_metrics(loss, held_out)
    if not all(math.isfinite(value) for value in (*means.values(), *clean.values())):
        raise DivergedError(
            f"The weights are useless after epoch {state.epoch + 1}: a loss is not finite. "
            "A smaller learning rate may help; the run keeps its last good checkpoint."
        )
    gamma = None if state.method.penalty is None else state.method.penalty.gamma
    return EpochMetrics(
        epoch=state.epoch + 1,
        loss=means["loss"],
        accuracy=means.get("accuracy"),
        phi=means.get("phi"),
        rho_running=means.get("rho_running"),
        gradients=means.get("gradients"),
        converged=means.get("converged"),
        gamma=None if gamma is None else float(gamma),
        calibration_loss=clean.get("loss"),
        calibration_accuracy=clean.get("accuracy"),
        seconds=state.seconds,
        curvature=None if state.guard is None else state.guard().curvature,
    )
