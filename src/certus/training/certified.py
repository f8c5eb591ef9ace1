"""Certified training: projection of the weights onto networks whose smoothness is proven.

    Θ = {θ : L̄(θ) ≤ (1 − 10⁻³)·sγ},        s the strong convexity of the cost (2 for ‖·‖₂²)

so that at every step of Algorithm 1 (alg:thealg) the inner problem is strongly concave with modulus at least
10⁻³·sγ, as thm:convergence asks (section:three-choose-two). A network is read as

    x → affine, …, affine → units → affine, … → units → … → last linear layer → loss

For units with σ'' ≤ b(1 − σ'²) the max rule of ``certus.bounds`` leaves, with τ = (1 − 10⁻³)·sγ,

    ‖W_l‖ ≤ 1,      h·D²/4 ≤ τ,      b_n ≤ τ/(g·e_n)

D the largest distance between two rows of the last layer, e_n the largest slope of a margin in unit n, g and
h the constants of the loss (1 and 1 for cross-entropy). So after each step, singular values are clipped at 1,
the last layer is scaled down until D satisfies its bound, and every unit gets the largest sharpness that the
last inequality allows. In other networks
the last layer is scaled by the proven bound itself, which costs an analysis per step.
"""

from __future__ import annotations

import copy
import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from certus._eval_mode import eval_mode
from certus._tensor import as_float64
from certus.bounds import SmoothnessBound, input_smoothness
from certus.bounds.analysis import kernel_cost
from certus.bounds.criteria import read_criterion
from certus.bounds.export import ExportedGraph, cached_graphs
from certus.bounds.layer_rules import RULES, LogSoftmax
from certus.bounds.network import read_nodes
from certus.bounds.norm_proposals import claim_norm
from certus.bounds.validation import validate
from certus.costs import Cost, SquaredL2
from certus.data import Samples
from certus.errors import UnsupportedError, require, require_number
from certus.inner import WRM, largest_curvature
from certus.kernel.operators import Affine, Reshape
from certus.kernel.passes import Shape
from certus.layers import LogCosh, SmoothAbs
from certus.losses import Criterion, CrossEntropy, ModelLoss

_LARGE = 25.0
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def clip_matrix(weight: Tensor, metric: Tensor | None = None) -> None:
    """Clip the singular values of W·diag(metric) at 1, in place; metric is (columns,) and ≥ 0, 1 when None.

    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    >>> clip_matrix(weight)
    >>> weight
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5000]])
    """
    scaled = weight.to(torch.promote_types(weight.dtype, torch.float32))
    scaled = scaled if metric is None else scaled * metric
    tall = scaled.shape[0] >= scaled.shape[1]
    gram = scaled.T @ scaled if tall else scaled @ scaled.T
    require(bool(torch.isfinite(gram).all()), "weight", "be finite, squared", "NaN or infinity")
    values, vectors = torch.linalg.eigh(gram)
    above = int((values > 1).sum())
    if above == 0:
        return
    vectors, excess = vectors[:, -above:], 1 - values[-above:].rsqrt()
    if tall:
        part = ((scaled @ vectors) * excess) @ vectors.T
    else:
        part = vectors @ (excess[:, None] * (vectors.T @ scaled))
    # Where the metric is 0 nothing moves, so that nothing is to be clipped.
    part = part if metric is None else part / torch.where(metric > 0, metric, 1.0)
    weight.sub_(part.to(weight.dtype))
    if float(values[-1]) > _LARGE:  # the values near 1 had few digits beside it
        clip_matrix(weight, metric)


@dataclass(frozen=True, eq=False)
class AffineLayer:
    """One affine layer. Its norm is 1 if it is trained, and then clipped; ``metric`` has (inputs,) factors of
    the cost in front of it, which the clipping counts in."""

    module: nn.Module
    in_shape: Shape
    reshapes: bool
    trained: bool
    norm: float
    metric: Tensor | None = None

    @torch.no_grad()
    def clip(self) -> None:
        """Clip the weights to norm at most 1, in place; a kernel is divided by its norm."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        if isinstance(self.module, nn.Linear):
            clip_matrix(weight, None if self.metric is None else self.metric.to(weight))
        else:
            rule = RULES[next(kind for kind in CONVOLUTIONS if isinstance(self.module, kind))]
            operator = rule(self.module, self.in_shape)
            assert isinstance(operator, Affine)
            claim_norm(operator)
            weight.div_(max(1.0, operator.norm))

    def slopes(self, slopes: Tensor, length: float) -> Tensor:
        """Bound the slopes in its inputs, e_n = min(Σ_j e_j|W_jn|, ‖W[:, n]‖·length), by those in its outputs
        and by the gradient's length. Shapes (1, *out) → (1, *in)."""
        if self.reshapes:
            return slopes.reshape(1, *self.in_shape)
        pulled = self._pull(slopes, 1)
        if not self.trained:
            return pulled.abs()  # a diagonal layer may change signs
        return torch.minimum(pulled, self._pull(torch.ones_like(slopes), 2).sqrt() * length)

    def _pull(self, rows: Tensor, power: int) -> Tensor:
        """Σ_j |W_jn|^power r_j."""
        weights = {name: values.cpu() for name, values in self.module.named_buffers()}
        for name, parameter in self.module.named_parameters():
            wide = as_float64(parameter.detach())
            weights[name] = wide.abs() ** power if name == "weight" else 0 * wide
        start = torch.zeros(1, *self.in_shape, dtype=rows.dtype, device=rows.device, requires_grad=True)
        with torch.enable_grad():
            image: Tensor = functional_call(self.module, weights, (start,))
            (pulled,) = torch.autograd.grad(image, start, rows.reshape(image.shape))
        return pulled


Block = tuple[list[AffineLayer], LogCosh | SmoothAbs]
"""Affine layers, and the units behind them."""


def read_structure(
    model: nn.Module, shape: Shape, metric: Tensor | None
) -> tuple[list[AffineLayer], list[Block] | None, list[AffineLayer], nn.Linear]:
    """Read the structure of a model; raises ``UnsupportedError`` for a layer that cannot be proven.

    Returns the trained affine layers but the last, which are kept at norm 1; the blocks from the inputs on,
    None if there are other parts than affine layers and units of log cosh or smooth |z|, or if the ``metric``
    of the cost does not meet a linear layer first; the layers behind the last units; the head.
    """
    for problem in validate(model, shape):
        raise UnsupportedError(
            f"The layer {problem.path or 'the model itself'} ({problem.kind})"
            f"{f' in {problem.line}' if problem.line else ''} cannot be certified: "
            f"{problem.reason}. Put in its place: {problem.replacement}."
        )
    for path, module in model.named_modules():
        if is_parametrized(module):
            raise UnsupportedError(
                f"The layer {path or 'the model itself'} ({type(module).__name__}) cannot be certified: its "
                "weight is computed by a parametrization, so it cannot be projected. Remove it first, with "
                "torch.nn.utils.parametrize.remove_parametrizations."
            )
    with eval_mode(model):
        nodes = read_nodes(model, shape)[1:]
    if nodes and isinstance(nodes[-1].primitive, LogSoftmax):  # which a loss of classes does not see
        nodes = nodes[:-1]
    modules = dict(model.named_modules(remove_duplicate=False))
    head = modules.get(nodes[-1].name) if nodes else model
    if not isinstance(head, nn.Linear) or not head.weight.requires_grad:
        where = f"{nodes[-1].name} ({nodes[-1].kind})" if nodes else "nothing"
        raise UnsupportedError(f"A certified network must end in a trained Linear layer; it ends in {where}.")
    blocks: list[Block] = []
    run: list[AffineLayer] = []
    clipped: list[AffineLayer] = []
    plain = True
    for node in nodes[:-1]:
        module = modules.get(node.name)
        if module is None or type(module).__name__ != node.kind:  # a function, or a layer used once more
            plain = False
        elif isinstance(node.primitive, Affine):
            part = _affine(module, node.primitive, metric)
            metric = metric if part.reshapes else None
            run.append(part)
            clipped += [part] if part.trained else []
            updated = isinstance(module, _BatchNorm) or any(
                each.requires_grad for each in module.parameters()
            )
            plain = plain and (part.trained or not updated)
        elif isinstance(module, LogCosh | SmoothAbs):
            blocks.append((run, module))
            run = []
        else:
            plain = False
    plain = plain and metric is None and not any(part.trained for part in run)
    return clipped, blocks if plain else None, run, head


def _affine(module: nn.Module, operator: Affine, metric: Tensor | None) -> AffineLayer:
    trained = isinstance(module, (nn.Linear, *CONVOLUTIONS)) and module.weight.requires_grad
    matrix = isinstance(module, nn.Linear) and trained
    claim_norm(operator)
    norm = 1.0 if trained else operator.norm
    if metric is not None and not matrix and not isinstance(operator, Reshape):
        norm *= float(metric.max())  # not counted in by the clipping
    counted = metric if matrix else None
    return AffineLayer(module, operator.in_shape, isinstance(operator, Reshape), trained, norm, counted)


SAFETY = 1e-3
"""Relative distance of the proven bound below sγ."""

_CROSS_ENTROPY, _L2 = CrossEntropy(), SquaredL2()
_ROUNDING = 2e-4  # a share that is kept free for float32 between proofs: a hundred times its rounding
_PRODUCTS = 8  # Hessian-vector products at each sample, to compare a final bound with
_SHARPEST = 40.0  # beyond it units are absolute values for all practical purposes, and gradients jump


class CertifiedSet:
    """Θ for one model, as a projection: ``certified(model)`` moves its weights into Θ, in place. Its γ
    follows a ``penalty``, if there is one; units are no sharper than ``sharpest``.

    >>> from certus.models import certified_mlp
    >>> model = certified_mlp(4, [32], 3)
    >>> certified = CertifiedSet(model, 1.5, input_shape=(4,))
    >>> certified(model)
    >>> certified.prove().curvature <= 3 * (1 - SAFETY)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        gamma: float,
        *,
        input_shape: Shape,
        criterion: Criterion = _CROSS_ENTROPY,
        cost: Cost = _L2,
        sharpest: float = _SHARPEST,
        penalty: WRM | None = None,
    ) -> None:
        require(0 < sharpest < math.inf, "sharpest", "be positive and finite", sharpest)
        if not cost.strong_convexity > 0:
            raise UnsupportedError(
                f"`cost` must be strongly convex to certify a training, so that sγ can exceed L̄; got {cost}."
            )
        softmax = read_criterion(criterion)
        if softmax is None:
            raise UnsupportedError(
                "A squared error cannot be certified over all inputs: its residuals F − y have no bound."
            )
        self._softmax, self._criterion, self._cost = softmax, criterion, cost
        self._model, self._shape, self._sharpest = model, tuple(input_shape), sharpest
        whitening = kernel_cost(cost, self._shape).whitening
        diagonal = whitening is not None and whitening.shape == self._shape
        metric = whitening.flatten() if whitening is not None and diagonal else None
        self._graphs: dict[tuple[nn.Module, Shape], ExportedGraph] = {}
        with cached_graphs(self._graphs):
            self._clipped, blocks, self._behind, self._head = read_structure(model, self._shape, metric)
        self._blocks = blocks if whitening is None or metric is not None else None
        self._gamma, self._penalty = require_number("gamma", gamma), penalty

    @property
    def gamma(self) -> float:
        """γ in force."""
        followed = None if self._penalty is None else self._penalty.gamma
        return self._gamma if followed is None else require_number("gamma", float(followed))

    @gamma.setter
    def gamma(self, value: float) -> None:
        self._gamma = require_number("gamma", value)

    @property
    def ceiling(self) -> float:
        """(1 − 10⁻³)·sγ."""
        return (1 - SAFETY) * self._cost.strong_convexity * self.gamma

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        require(model is self._model, "model", "be the model that this projection was created for", "another")
        for part in self._clipped:
            part.clip()
        if self._blocks is None:
            with cached_graphs(self._graphs):  # training changes weights, not what a forward does
                self._scale_by_proof()
        else:
            self._scale(self._blocks)

    def prove(self) -> SmoothnessBound:
        """Prove the bound at the present weights, in float64. If it exceeds the ceiling, scale down the
        last layer, and warn."""
        bound = self._bound()
        if bound.curvature > self.ceiling:
            warnings.warn(
                f"The proven curvature {bound.curvature:.6g} exceeded {self.ceiling:.6g}; the last layer was "
                "scaled down.",
                stacklevel=2,
            )
            self._scale_by_proof()
            bound = self._bound()
            rule = f"have a proven curvature of at most {self.ceiling:.6g} once its last layer shrinks"
            require(bound.curvature <= self.ceiling, "model", rule, bound.curvature)
        return bound

    def settle(self, samples: Samples) -> SmoothnessBound:
        """Prove the bound at the end of a training, and raise γ_min accordingly where γ follows a ρ.
        Raises ``ContradictionError`` if the curvature of the loss at a sample, by a few Hessian-vector
        products, is larger."""
        bound = self.prove()
        loss = ModelLoss(copy.deepcopy(self._model).cpu().double().eval(), self._criterion)
        inputs, targets = samples.inputs.cpu().double(), samples.targets.cpu()
        attained = -math.inf
        with suppress(UnsupportedError):  # where curvature in this norm is no eigenvalue
            curvature = largest_curvature(loss, inputs, targets, cost=bound.cost, max_products=_PRODUCTS)
            attained = float(curvature.largest.nan_to_num(-math.inf).max())
        bound.check_attained(attained)
        if self._penalty is not None and self._penalty.rho is not None:
            self._penalty.gamma_min = max(self._penalty.gamma_min, bound.gamma / (1 - SAFETY))
        return bound

    def _bound(self) -> SmoothnessBound:
        return input_smoothness(self._model, self._criterion, input_shape=self._shape, cost=self._cost)

    @torch.no_grad()
    def _scale_by_proof(self) -> None:
        """Scale the last layer by s ≤ 1 until L̄ is within the ceiling. Every term of L̄ is of first or second
        order in that layer, so s·L̄ is an upper bound afterwards."""
        target = self.ceiling * (1 - _ROUNDING)
        for _ in range(8):  # the second order makes s = τ/L̄ too small: from √s on, a few steps come near
            bound = self._bound().curvature
            require(math.isfinite(bound), "model", "have a finite proven curvature", bound)
            if bound <= self.ceiling:
                return
            self._head.weight.mul_(math.sqrt(target / bound))
        self._head.weight.mul_(min(1.0, target / self._bound().curvature))

    def _scale(self, blocks: list[Block]) -> None:
        """Solve the max rule for the last layer's size and for the sharpness of every unit."""
        head, softmax, parts = self._head, self._softmax, self._behind
        limit = self.ceiling * (1 - _ROUNDING)
        below = math.prod(_norm(affine) for affine, _ in blocks)  # of all that stands before the units
        weight = as_float64(head.weight).clone()  # a float64 one would shrink along
        rows = torch.cat([torch.zeros_like(weight[:1]), weight]) if softmax.logistic else weight
        apart = float(torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").max())
        most = 2 * math.sqrt(limit / softmax.spread) / (below * _norm(parts))
        shrink = min(1.0, most / apart) if apart > 0 else 1.0
        head.weight.mul_(shrink)
        slope = (rows.amax(0) - rows.amin(0)).unsqueeze(0) * (softmax.slope * shrink)
        length = softmax.slope * apart * shrink  # of the gradient of a margin
        for affine, units in reversed(blocks):
            for part in reversed(parts):
                slope = part.slopes(slope, length)
                length *= part.norm
            allowed = (limit / below**2 / slope[0].clamp_min(1e-30)).clamp_max(self._sharpest)
            own = units.sharpness.shape  # units may share a parameter, which then has the least sharpness
            sizes = (1,) * (allowed.dim() - len(own)) + tuple(own)
            shared = [axis for axis, size in enumerate(sizes) if size == 1]
            least = allowed.amin(shared, keepdim=True) if shared else allowed
            units.sharpness.copy_(least.reshape(own))
            below, parts = below / _norm(affine), affine


def _norm(parts: list[AffineLayer]) -> float:
    return math.prod(part.norm for part in parts)


@dataclass(frozen=True)
class CertifiedTraining:
    """Certified training: after each step the weights return to where L̄ ≤ (1 − 10⁻³)·sγ is proven.

    Args:
        gamma: γ of the proof; None for the γ of the method, a WRM, which Θ then follows.
        criterion: the loss that the proof is about; when None the training loss without label smoothing,
            which does not raise the curvature bound.
        cost: the transport cost; that of the method when None.
        sharpest: upper limit on the sharpness of units.
    """

    gamma: float | None = None
    criterion: Criterion | None = None
    cost: Cost | None = None
    sharpest: float = _SHARPEST

    def __post_init__(self) -> None:
        if self.gamma is not None:
            require_number("gamma", self.gamma)

    def theta(
        self, model: nn.Module, shape: Shape, criterion: Criterion, cost: Cost, penalty: WRM | None = None
    ) -> CertifiedSet:
        """Return Θ for a model; raises ``UnsupportedError`` for one that cannot be proven.

        Args:
            shape: shape of one input.
            criterion, cost: criterion and cost of the training, used if this object sets none.
            penalty: the WRM whose γ is followed where this object sets none.
        """
        if isinstance(criterion, CrossEntropy):
            criterion = replace(criterion, label_smoothing=0.0)
        return CertifiedSet(
            model,
            1.0 if self.gamma is None else self.gamma,
            input_shape=shape,
            criterion=criterion if self.criterion is None else self.criterion,
            cost=cost if self.cost is None else self.cost,
            sharpest=self.sharpest,
            penalty=penalty if self.gamma is None else None,
        )
