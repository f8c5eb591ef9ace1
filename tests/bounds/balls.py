"""Small networks in ball arithmetic: values and derivatives with rigorous enclosures, 300 bits wide.

A line x + tv through a point becomes a power series in t. Its coefficients behind the network are the value,
the slope along v, and half of vᵀ∇²v, without autograd and without float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flint import arb, arb_mat, arb_series, ctx
from torch import Tensor, nn

from certus.layers import LogCosh, Residual, SmoothAbs

Ball = Any  # flint's arb
Series = Any  # flint's arb_series

PRECISION = 300


@contextmanager
def balls(terms: int = 3) -> Iterator[None]:
    """Within it, balls have ``PRECISION`` bits and series so many terms."""
    bits, cap = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = PRECISION, terms
    try:
        yield
    finally:
        ctx.prec, ctx.cap = bits, cap


def exact(tensor: Tensor) -> list[Ball]:
    """Flat numbers, exactly."""
    return [arb(float(value)) for value in tensor.detach().flatten()]


def _tanh(z: Series) -> Series:
    return 1 - 2 / ((2 * z).exp() + 1)


def _sigmoid(z: Series) -> Series:
    return 1 / (1 + (-z).exp())


def _softplus(z: Series) -> Series:
    return (1 + z.exp()).log()


def _log_cosh(z: Series) -> Series:
    return ((z.exp() + (-z).exp()) / 2).log()


def _gelu_tanh(z: Series) -> Series:
    return z / 2 * (1 + _tanh((2 / arb.pi()).sqrt() * (z + arb("0.044715") * z * z * z)))


FUNCTIONS: dict[str, Callable[[Series], Series]] = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "softplus": _softplus,
    "gelu": lambda z: z / 2 * (1 + (z / arb(2).sqrt()).erf()),
    "gelu_tanh": _gelu_tanh,
    "silu": lambda z: z * _sigmoid(z),
    "mish": lambda z: z * _tanh(_softplus(z)),
    "log_cosh": _log_cosh,
    "smooth_abs": lambda z: (z * z + 1).sqrt() - 1,
}
"""The base σ of the activation table, by name; ELU, which has two pieces, is checked in closed form."""


def _activation(module: nn.Module, units: Sequence[Series]) -> list[Series]:
    match module:
        case nn.Tanh():
            return [_tanh(unit) for unit in units]
        case nn.Sigmoid():
            return [_sigmoid(unit) for unit in units]
        case nn.Softplus():
            sharp = arb(float(module.beta))
            return [_softplus(sharp * unit) / sharp for unit in units]
        case LogCosh() | SmoothAbs():
            sharp = arb(float(module.sharpness))
            base = FUNCTIONS["log_cosh" if isinstance(module, LogCosh) else "smooth_abs"]
            return [base(sharp * unit) / sharp for unit in units]
    raise NotImplementedError(type(module))


def outputs(model: nn.Sequential, point: Tensor, direction: Tensor | None = None) -> list[Series]:
    """F_k(x + tv) as series, for a sequence of linear layers, activations and residual blocks."""
    along = [0] * point.numel() if direction is None else exact(direction)
    return _through(
        model, [arb_series([value, slope]) for value, slope in zip(exact(point), along, strict=True)]
    )


def _through(model: nn.Sequential, units: list[Series]) -> list[Series]:
    for module in model:
        if isinstance(module, nn.Linear):
            rows = [exact(row) for row in module.weight]
            shifts = exact(module.bias) if module.bias is not None else [0] * len(rows)
            units = [
                sum((weight * unit for weight, unit in zip(row, units, strict=True)), arb_series([shift]))
                for row, shift in zip(rows, shifts, strict=True)
            ]
        elif isinstance(module, Residual):
            assert isinstance(module.branch, nn.Sequential)
            assert isinstance(module.shortcut, nn.Identity)
            units = [sum(both) for both in zip(units, _through(module.branch, units), strict=True)]
        else:
            units = _activation(module, units)
    return units


def cross_entropy(outputs: Sequence[Series], target: int) -> Series:
    """log Σ_k exp(F_k − F_y)."""
    return sum(((one - outputs[target]).exp() for one in outputs), arb_series([0])).log()


def coefficient(series: Series, power: int) -> Ball:
    found = series.coeffs()
    return found[power] if power < len(found) else arb(0)


def gram_is_below(bound: float, matrix: Tensor, weights: Tensor | None = None) -> bool:
    """Whether λ_max(Aᵀ diag(c) A) < bound is proven, the product taken in balls too."""
    rows, columns = matrix.shape
    own = arb_mat(rows, columns, exact(matrix))
    scales = [arb(1)] * rows if weights is None else exact(weights)
    scaled = arb_mat(rows, columns, [scales[i] * own[i, j] for i in range(rows) for j in range(columns)])
    gram = own.transpose() * scaled
    return _positive(
        [[arb(bound if i == j else 0.0) - gram[i, j] for j in range(columns)] for i in range(columns)]
    )


def _positive(matrix: list[list[Ball]]) -> bool:
    """Gaussian elimination; every pivot must be positive beyond doubt."""
    for i in range(len(matrix)):
        pivot = matrix[i][i]
        if not pivot > 0:
            return False
        for row in matrix[i + 1 :]:
            factor = row[i] / pivot
            for j in range(i, len(matrix)):
                row[j] = row[j] - factor * matrix[i][j]
    return True
