"""Check dual values of dense networks a second time, by ball arithmetic, sharing no code with certus.

The plainest proof of φ_γ(x) ≤ b for cross-entropy and the squared L2 cost: with the operator norms of the
layers the textbook recursion gives α, β with ‖∇F‖ ≤ α and ‖∇²F‖ ≤ β, so that the loss has the Lipschitz
constant √2·α and the curvature L ≤ √2·β + α²/2. For any point z, f = ℓ − γ‖· − x‖² and 2γ > L,

    φ_γ(x) ≤ f(z) + ‖∇f(z)‖²/(2(2γ − L)),          and for every γ    φ_γ(x) ≤ ℓ(x) + 2α²/(4γ).

Everything is computed in balls (arb, 200 bits), weights, inputs and points taken as the exact numbers that
their float64 representations are. A norm is a claim: s ≥ ‖W‖ is accepted if the LDLᵀ factorisation of
s²I − WᵀW has positive pivots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, ctx

Row = list[arb]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

_BITS = 200


def _tanh(z: arb) -> tuple[arb, arb]:
    value = z.tanh()
    return value, 1 - value * value


def _softplus(z: arb) -> tuple[arb, arb]:
    return (1 + z.exp()).log(), 1 / (1 + (-z).exp())


def _sigmoid(z: arb) -> tuple[arb, arb]:
    value = 1 / (1 + (-z).exp())
    return value, value * (1 - value)


ACTIVATIONS = {
    "tanh": (_tanh, arb(1), arb(77) / 100),  # sup |σ''| = 4/(3√3) = 0.7698…
    "softplus": (_softplus, arb(1), arb(1) / 4),
    "sigmoid": (_sigmoid, arb(1) / 4, arb(97) / 1000),  # 1/(6√3) = 0.0962…
}
"""Name → σ and σ' of a ball, sup |σ'| and sup |σ''|."""


class RefusedError(Exception):
    """A claim that this checker cannot confirm."""


@dataclass(frozen=True)
class Network:
    """Affine layers (W, b), an activation between them, and a claimed norm for each W."""

    layers: Sequence[tuple[Matrix, Vector]]
    activation: str
    norms: Sequence[float]


def check_norm(matrix: Matrix, claim: float) -> None:
    """Raise ``RefusedError`` unless ‖W‖ ≤ claim."""
    rows = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    side = len(rows)
    exact = [[arb(float(entry)) for entry in row] for row in rows]
    square = arb(claim) * arb(claim)
    left = [[-_dot(exact[i], exact[j]) + (square if i == j else 0) for j in range(side)] for i in range(side)]
    for k in range(side):
        if not left[k][k] > 0:
            raise RefusedError(f"the norm of a layer is not proven to be at most {claim!r}")
        for i in range(k + 1, side):
            factor = left[i][k] / left[k][k]
            for j in range(k + 1, side):
                left[i][j] -= factor * left[k][j]


def dual_bounds(
    network: Network, inputs: Matrix, labels: Sequence[int], points: Matrix, gamma: float
) -> tuple[list[float], float]:
    """Return upper bounds on φ_γ of each sample from the proposed points, and (2γ − L)/2γ, rounded down: f is
    proven concave where that is positive.

    Args:
        inputs, points: (n, features).
    """
    ctx.prec = _BITS
    for (matrix, _), claim in zip(network.layers, network.norms, strict=True):
        check_norm(matrix, claim)
    lipschitz, curvature = _constants(network)
    limit = arb(2).sqrt() * curvature + lipschitz * lipschitz / 2
    modulus, price = 2 * arb(gamma) - limit, arb(gamma)
    concave = bool(modulus > 0)
    bounds = []
    for sample, label, proposed in zip(inputs, labels, points, strict=True):
        origin, point = [arb(float(x)) for x in sample], [arb(float(x)) for x in proposed]
        bound = _upper(_loss(network, origin, label)[0] + 2 * lipschitz * lipschitz / (4 * price))
        if concave:
            value, gradient = _loss(network, point, label)
            move = [z - x for z, x in zip(point, origin, strict=True)]
            slope = [g - 2 * price * d for g, d in zip(gradient, move, strict=True)]
            gap = _dot(slope, slope) / (2 * modulus)
            bound = min(bound, _upper(value - price * _dot(move, move) + gap))
        bounds.append(bound)
    return bounds, float(np.nextafter(float((modulus / (2 * price)).lower()), -np.inf))


def _constants(network: Network) -> tuple[arb, arb]:
    """α and β of the outputs."""
    _, steep, sharp = ACTIVATIONS[network.activation]
    lipschitz, curvature = arb(1), arb(0)
    for index, claim in enumerate(network.norms):
        if index > 0:
            curvature = steep * curvature + sharp * lipschitz * lipschitz
            lipschitz = steep * lipschitz
        lipschitz, curvature = arb(claim) * lipschitz, arb(claim) * curvature
    return lipschitz, curvature


def _loss(network: Network, point: Row, label: int) -> tuple[arb, Row]:
    """Cross-entropy at one point, and its gradient."""
    function = ACTIVATIONS[network.activation][0]
    values, slopes = point, list[Row]()
    for index, (matrix, bias) in enumerate(network.layers):
        if index > 0:
            pairs = [function(z) for z in values]
            values, slopes = [value for value, _ in pairs], [*slopes, [slope for _, slope in pairs]]
        rows = [[arb(float(entry)) for entry in row] for row in matrix]
        values = [_dot(row, values) + arb(float(b)) for row, b in zip(rows, bias, strict=True)]
    powers = [(value - values[label]).exp() for value in values]
    total = sum(powers, arb(0))
    gradient = [power / total for power in powers]
    gradient[label] -= 1
    for index in range(len(network.layers) - 1, -1, -1):
        columns = network.layers[index][0].T
        gradient = [_dot([arb(float(entry)) for entry in column], gradient) for column in columns]
        if index > 0:
            gradient = [g * slope for g, slope in zip(gradient, slopes[index - 1], strict=True)]
    return total.log(), gradient


def _dot(left: Row, right: Row) -> arb:
    return sum((a * b for a, b in zip(left, right, strict=True)), arb(0))


def _upper(ball: arb) -> float:
    """The upper end of a ball as a float64, rounded up."""
    return float(np.nextafter(float(ball.upper()), np.inf))
