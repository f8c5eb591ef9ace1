"""Algorithm 1 (alg:thealg): one loop for every method, the only difference between ERM, WRM and the others.

    for each batch:   ẑ ← method(z),   θ ← Proj_Θ(θ − α ∇_θ ℓ(θ; ẑ))

In certified training Proj_Θ keeps the weights where L̄ ≤ (1 − 10⁻³)·sγ is proven: every step is inside the
conditions of thm:convergence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from certus._defaults import CERTIFIED, PLAIN
from certus._epoch_metrics import EpochMetrics
from certus._eval_mode import loss_eval_mode, unwrapped
from certus._render import Renderable
from certus._validation import check_batch
from certus.bounds import SmoothnessBound
from certus.costs import SquaredL2
from certus.data import DataLike, Samples, as_samples
from certus.datasets import SplitDataset
from certus.errors import ArgumentError, CertusError, UnsupportedError, as_count, require
from certus.inner.methods import Method, MethodLike, as_method
from certus.losses import (
    Criterion,
    ModelLoss,
    as_criterion,
    autocast_type,
    evaluate_loss,
    inferred_criterion,
    require_tensor,
)
from certus.smoothing.sampling import Noise
from certus.training.augmentation import NoisyLoss, fresh_noise, training_noise
from certus.training.calibration import Robustness, calibrate, measure_robustness
from certus.training.certified import CertifiedTraining
from certus.training.loaders import IndexedLoader, in_memory, make_loader, mix
from certus.training.metrics import Sums, clean_metrics, right_or_wrong
from certus.training.optimizers import (
    OptimizerLike,
    Projection,
    SchedulerLike,
    make_optimizer,
    make_scheduler,
)
from certus.training.theory import SoftmaxTheory, TheoryReport

if TYPE_CHECKING:  # it loads torch._dynamo, which takes a second and a half
    from lightning_fabric import Fabric

_MEASURED, _LEAST_MEASURED = 0.05, 2048  # of the samples, on which ρ̂ is measured at the end
_FEW = 32  # samples that show dtypes and shapes, and at which certified training is checked


class DivergedError(CertusError):
    """The loss became NaN or infinite; no later state is written."""


@dataclass
class TrainingState:
    """Everything that changes while a model trains; a checkpoint holds it to resume exactly.

    Attributes:
        epoch, step: the next step to take, and the epoch that it belongs to.
        sums: metrics of the present epoch; seconds: its wall time so far.
        history: the epochs that are complete.
        prove: function that proves the bound for the current weights in certified training; called before the
            state is saved.
        should_stop: set by a callback after an epoch to end the training.
    """

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    method: Method
    epoch: int = 0
    step: int = 0
    sums: Sums = field(default_factory=Sums)
    seconds: float = 0.0
    history: list[EpochMetrics] = field(default_factory=list)
    prove: Callable[[], SmoothnessBound] | None = None
    should_stop: bool = False


class Callback:
    """Hooks of the training loop; each does nothing unless it is overridden."""

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        """Run before the first step; may restore an earlier state in place.

        Args:
            steps: number of steps of an epoch; None for data of unknown length.
        """

    def on_step_end(self, state: TrainingState) -> None:
        """Run after each step; ``state`` is then consistent."""

    def on_epoch_end(self, state: TrainingState) -> None:
        """Run after each epoch; ``state.history`` ends with it."""

    def on_measure_start(self) -> None:
        """Run after the last epoch, before the passes that measure ρ̂."""


@dataclass(frozen=True)
class Fit(Renderable):
    """Result of a training; ``print`` shows its epochs, ``plot`` draws them.

    Attributes:
        model: the model that was passed in, in eval mode.
        history: one entry per epoch.
        robustness: for WRM, ρ̂, φ and γ in one pass over the training data, or a random subset of them, at the
            final θ; None otherwise.
        proof: smoothness bound at the final θ of a certified training, *proven* or *assumed*; else None.
        inner_precision: for WRM, the type in which the model ran in the ascents of the training.
        theory: step size and bound of thm:convergence if they were asked for, *assumed*; else None.
    """

    model: nn.Module = field(repr=False)
    history: list[EpochMetrics]
    robustness: Robustness | None
    proof: SmoothnessBound | None = None
    inner_precision: str | None = None
    theory: TheoryReport | None = None


def fit(
    model: nn.Module,
    data: SplitDataset | DataLike,
    *,
    method: MethodLike | None = None,
    criterion: Criterion | None = None,
    epochs: int = PLAIN.epochs,
    batch_size: int | None = None,
    optimizer: OptimizerLike = None,
    scheduler: SchedulerLike = None,
    projection: Projection | None = None,
    certified: CertifiedTraining | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    noise: float | Noise | None = None,
    weight_decay: float | Mapping[str, float] = 0.0,
    seed: int = 0,
    fabric: Fabric | None = None,
    callbacks: list[Callback] | None = None,
    progress: bool | None = None,
    measure_all: bool = False,
    theory: bool = False,
) -> Fit:
    """Train ``model`` by Algorithm 1.

    Args:
        model: trained in place. Seed its initial weights yourself. For the result of ``torch.compile`` or
            ``DistributedDataParallel``, the module inside is trained.
        data: a ``SplitDataset``, or training samples alone (then nothing is measured between epochs):
            ``Samples``, (inputs, targets) as tensors, arrays or frames of numbers, a torch ``Dataset`` or
            ``DataLoader``, or a list of batches. Those of torch are read batch by batch, once in every epoch
            and at least once more to measure ρ̂; they need not fit into memory, and their transforms run.
            Inputs are converted to the model's precision. ``Samples.weights`` weight the samples.
        method: any method, or a function ``(loss, inputs, targets) -> moved inputs``; ``ERM()`` when None.
        criterion: cross-entropy for classes and squared error for regression, when None; criteria of torch
            are applied to each sample (``losses.as_criterion``).
        epochs: passes over the data.
        batch_size: samples of one step, over all processes; 128 when None. A loader has its own.
        optimizer: a torch optimizer of the model's parameters, or a function that makes one from parameter
            groups, such as ``lambda groups: torch.optim.SGD(groups, lr=0.1)``. None for Adam with a learning
            rate of 0.001; of 0.01 in certified training.
        scheduler: a torch learning-rate scheduler of ``optimizer``, or a function that makes one from the
            optimizer; it steps once per epoch, a ``OneCycleLR`` after every batch. None for a constant rate;
            in certified training without an ``optimizer``, for a cosine down to 0.
        projection: Proj_Θ, applied after each step.
        certified: ``CertifiedTraining()`` keeps L̄ ≤ (1 − 10⁻³)·sγ after each step, proven after each epoch
            and at the end, for the γ and the cost of a WRM; ``CertifiedTraining(gamma=2.0)`` sets γ, which
            ERM requires. Refuses networks that cannot be proven.
        augment: changes the inputs of each batch before anything else, such as ``RandomTranslation(1)``.
        noise: σ of Gaussian noise on the inputs, in the norm of the method's cost, drawn anew at every
            evaluation of the loss: for models that are certified by randomised smoothing. WRM then needs an
            ascent of fixed steps.
        weight_decay: one number, or one for each layer by name.
        seed: seed of the order of the batches and of the randomness inside the model.
        fabric: devices, precision and processes; one CPU or the best accelerator present when None.
            MPS has no float64: where it is the best, a float64 model is trained on the CPU.
        callbacks: ``Callback`` objects, run in this order.
        progress: False hides the progress bar, which is shown in a terminal or a notebook.
        measure_all: measure ρ̂ at the end on all training samples. By default it is measured on a random
            subset of a twentieth of them, and of at least 2,048, with an interval: in less time than an epoch
            without perturbations. Loaders and streams are read whole.
        theory: report the step size and the bound of thm:convergence, for a linear softmax classifier and WRM
            at a fixed γ; others are refused. The optimizer stays as it is.

    A run is a function of its arguments: the same call gives the same weights, bit for bit, on one machine.
    For a ``DataLoader`` this holds if its order and its transforms draw from torch's own random numbers. It
    does not hold if they draw from a generator that is not seeded again for each call.

    >>> import certus
    >>> model, data = nn.Linear(2, 2), (torch.randn(64, 2), torch.randint(2, (64,)))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    >>> run = certus.fit(model, data, method=certus.WRM(gamma=2.0), optimizer=optimizer, scheduler=scheduler)
    >>> len(run.history)
    10
    """
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
    for name, function, form in (
        ("projection", projection, "a function of the model, such as certus.training.WeightBall(10.0)"),
        ("augment", augment, "a function of the inputs, such as certus.training.RandomTranslation(1)"),
    ):
        require(function is None or callable(function), name, f"be {form}", repr(function))
    valid = certified is None or isinstance(certified, CertifiedTraining)
    require(valid, "certified", "be a certus.training.CertifiedTraining, or None", repr(certified))
    from lightning_fabric import Fabric

    require(fabric is None or isinstance(fabric, Fabric), "fabric", "be a lightning_fabric.Fabric", fabric)
    valid = isinstance(callbacks, Iterable | None) and all(
        isinstance(each, Callback) for each in callbacks or ()
    )
    require(valid, "callbacks", "be a list of certus.training.Callback objects", callbacks)
    hooks = list(callbacks or [])
    epochs, seed = as_count("epochs", epochs), as_count("seed", seed, least=0)
    method = as_method(method)
    fabric = fabric or one_device(model)
    # A compiled model trains as it is. Exchanging gradients is the fabric's task, not that of a wrapper.
    wrapper, bare = model, unwrapped(model)
    if any(isinstance(part, DataParallel | DistributedDataParallel) for part in model.modules()):
        model = bare
    train: DataLike = data.train if isinstance(data, SplitDataset) else data
    held_out = in_memory(data.calibration, bare, fabric.device) if isinstance(data, SplitDataset) else None
    rank, processes = fabric.global_rank, fabric.world_size
    loader = make_loader(train, bare, batch_size, seed, rank=rank, processes=processes, device=fabric.device)
    with torch.random.fork_rng():  # reading may draw
        few = loader.some(_FEW)
    if criterion is None:
        criterion = inferred_criterion(few.targets)
    else:  # which may need all targets, if they are in memory
        samples = as_samples(train)
        criterion = as_criterion(criterion, samples.targets if isinstance(samples, Samples) else None)
    if method.penalty is not None and isinstance(method.penalty.gamma, Tensor):
        raise ArgumentError("`gamma` must be one number to train with; got a tensor.")
    norms = [name for name, part in bare.named_modules() if isinstance(part, _BatchNorm)]
    if norms and isinstance(loader, IndexedLoader) and loader.smallest_batch // processes == 1:
        raise ArgumentError(
            f"`batch_size` must not leave a batch of one sample to `{norms[0]}`, which normalises over "
            f"the batch; {loader.count} samples in batches of {loader.batch_size} do."
        )
    defaults = PLAIN if certified is None else CERTIFIED
    chosen = make_optimizer(optimizer, bare, weight_decay, defaults.learning_rate)
    cosine = defaults.schedule == "cosine" and optimizer is None
    state = TrainingState(bare, chosen, make_scheduler(scheduler, chosen, epochs if cosine else None), method)
    # Fabric would compile again what was compiled, which fails if that was before it was imported.
    wrapped, chosen = fabric.setup(model, chosen, _reapply_compile=False)
    with torch.random.fork_rng(), torch.no_grad(), loss_eval_mode(bare):  # fails if it cannot run
        evaluate_loss(ModelLoss(wrapped, criterion), few.inputs, few.targets)
    watched = None
    if theory:
        samples = as_samples(train)
        if not isinstance(samples, Samples):
            raise UnsupportedError("`theory` needs training data in memory, such as tensors; got a loader.")
        watched = SoftmaxTheory(bare, criterion, method, in_memory(samples, bare, fabric.device))
    theta = None
    if certified is not None:
        rule = "be None in certified training, which has its own"
        require(projection is None, "projection", rule, projection)
        if certified.gamma is None and method.penalty is None:
            raise ArgumentError(
                "`certified` must have a γ for a method without one, CertifiedTraining(gamma=...); got None."
            )
        cost = SquaredL2() if method.penalty is None else method.penalty.cost
        projection = theta = certified.theta(bare, few.inputs.shape[1:], criterion, cost, method.penalty)
        theta(bare)
        if processes > 1 and norms:
            raise UnsupportedError(
                "Certified training with batch normalisation runs in one process only: each process has its "
                f"own statistics, and would scale its own weights; got {processes} processes."
            )
        state.prove = theta.prove
    # The ascent runs on the bare model: its passes are no business of a wrapper that synchronises gradients.
    loss, noisy = ModelLoss(model, criterion), training_noise(noise, method)
    noisy_loss = loss if noisy is None else NoisyLoss(model, criterion, noisy)
    moving_loss = noisy_loss
    if method.penalty is None or method.penalty.precision != "float32":
        moving_loss = replace(noisy_loss, autocast=_autocast(fabric))
    with ExitStack() as stack:
        if progress is not False and rank == 0:
            from certus.training.callbacks import ProgressBar  # which is a Callback

            hooks.append(stack.enter_context(ProgressBar()))
        with torch.random.fork_rng():
            for hook in hooks:
                hook.on_train_start(state, epochs, loader.steps)
            if watched is not None and (state.epoch, state.step) != (0, 0):
                raise UnsupportedError(
                    "`theory` needs a training from its first step; a callback resumed one."
                )
            while state.epoch < epochs and not state.should_stop:
                began = time.perf_counter() - state.seconds
                model.train()
                method.train()
                for step, batch, whole in loader.epoch(state.epoch, first=state.step):
                    inputs, targets, weights = batch.inputs, batch.targets, batch.weights
                    if augment is not None:
                        inputs = augment(inputs)
                    weighted = {} if weights is None else {"weights": weights}  # a method may not take any
                    perturbed = method.perturb(moving_loss, inputs, targets, **weighted)
                    assert perturbed.targets is not None
                    moved = perturbed.inputs
                    if noisy is not None:
                        moved = moved + fresh_noise(noisy, moved)
                    outputs = require_tensor(wrapped(moved))
                    losses = criterion(outputs, perturbed.targets)
                    if not torch.isfinite(losses).all():
                        check_batch(batch.inputs, batch.targets)  # or the data are to blame
                        raise DivergedError(
                            f"The training loss is not finite in epoch {state.epoch + 1}, step {step + 1}: "
                            "a smaller learning rate, or a projection of the weights, may help."
                        )
                    # Averaging over processes, as a wrapper does, must give the mean over the whole batch.
                    summed = losses.sum() if weights is None else (losses * weights.to(losses)).sum()
                    fabric.backward(summed * (processes / whole))
                    chosen.step()
                    chosen.zero_grad()
                    if projection is not None:
                        projection(bare)
                    if isinstance(state.scheduler, OneCycleLR):
                        state.scheduler.step()
                    right = right_or_wrong(outputs, perturbed.targets)
                    state.sums.add(weights, loss=losses, **right, **perturbed.measured)
                    state.step, state.seconds = step + 1, time.perf_counter() - began
                    if watched is not None:
                        watched.record_step()
                    for hook in hooks:
                        hook.on_step_end(state)
                if state.scheduler is not None and not isinstance(state.scheduler, OneCycleLR):
                    state.scheduler.step()
                state.history.append(_close_epoch(state, loss, held_out, fabric))
                state.epoch, state.step, state.sums, state.seconds = state.epoch + 1, 0, Sums(), 0.0
                for hook in hooks:
                    hook.on_epoch_end(state)
        wrapper.eval()
        method.train(False)
        robustness, proof = None, None if theta is None else theta.settle(few)
        inner = None if method.penalty is None else method.penalty.used_precision
        if method.penalty is not None:
            for hook in hooks:
                hook.on_measure_start()
            measure = measure_robustness if method.penalty.rho is None else calibrate
            with torch.random.fork_rng():
                torch.manual_seed(mix(seed, epochs, 0, rank))
                whole = measure_all or loader.count is None
                at_most = None if whole else max(_LEAST_MEASURED, int((loader.count or 0) * _MEASURED))
                robustness = measure(method.penalty, noisy_loss, loader, loader.batch_size, fabric, at_most)
    report = None if watched is None else watched.report()
    return Fit(wrapper, state.history, robustness, proof, inner, report)


FABRIC_PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
}
"""Precision of training steps by the name in settings → Fabric's name."""


def one_device(model: nn.Module, precision: str = "float32") -> Fabric:
    """Return a Fabric for the best accelerator or the CPU; the CPU for a float64 model instead of MPS."""
    from lightning_fabric import Fabric

    fabric = Fabric(devices=1, precision=FABRIC_PRECISIONS[precision])
    wide = any(values.dtype == torch.float64 for values in (*model.parameters(), *model.buffers()))
    return Fabric(accelerator="cpu", devices=1) if wide and fabric.device.type == "mps" else fabric


def _autocast(fabric: Fabric) -> torch.dtype | None:
    """Return the 16-bit type of a Fabric's mixed precision, which the ascent shares; None for others."""
    with fabric.autocast():
        return autocast_type(fabric.device.type)


def _close_epoch(
    state: TrainingState, loss: ModelLoss, held_out: Samples | None, fabric: Fabric
) -> EpochMetrics:
    means = state.sums.means(fabric)
    clean = {} if held_out is None else clean_metrics(loss, held_out)
    if not all(math.isfinite(value) for value in (*means.values(), *clean.values())):
        raise DivergedError(
            f"The loss is not finite after epoch {state.epoch + 1}. Use a smaller learning rate; a run keeps "
            "its last checkpoint with a finite loss."
        )
    gamma = None if state.method.penalty is None else state.method.penalty.gamma
    names = ("accuracy", "phi", "rho_running", "gradients", "converged")
    return EpochMetrics(
        epoch=state.epoch + 1,
        loss=means["loss"],
        **{name: means.get(name) for name in names},
        gamma=None if gamma is None else float(gamma),
        calibration_loss=clean.get("loss"),
        calibration_accuracy=clean.get("accuracy"),
        seconds=state.seconds,
        curvature=None if state.prove is None else state.prove().curvature,
    )
