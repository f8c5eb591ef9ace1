"""Each primitive by itself, in cases small enough for the truth: its bounds are exact there.

A whole network has room between its bounds and what is attained, in which a mistake of one primitive can
hide.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from certus.bounds.layer_summary import paper_bound
from certus.kernel.losses import Softmax
from certus.kernel.passes import ForwardBound, GradientBound, Place, Range, Totals
from certus.kernel.pointwise import Pointwise
from certus.layers import LogCosh, Residual, SmoothAbs
from certus.training.preflight import certificate_outlook
from tests.kernel.reading import dense, graph, operator, primitive

HERE = Place(1)


def full(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def totals() -> Totals:
    return Totals(torch.full((1, 1), math.inf).double(), full(3.0))  # behind what gains 3


def moving(jacobian: Tensor, curvature: float = 0.0) -> ForwardBound:
    """Everywhere, behind layers of one constant Jacobian."""
    length = torch.linalg.matrix_norm(jacobian, 2).reshape(1)
    return ForwardBound(length, jacobian.norm(dim=1).unsqueeze(0), full(curvature))


def one_row(low: Tensor, high: Tensor, curvature: float | None = None) -> GradientBound:
    most = torch.maximum(low.abs(), high.abs()).norm().reshape(1, 1)
    known = None if curvature is None else full(curvature)[None]
    return GradientBound(low[None, None], high[None, None], most, known)


@pytest.mark.parametrize("sizes", [(5, 3), (3, 6)])
def test_an_operator_moves_as_its_matrix_does(sizes: tuple[int, int]) -> None:
    layer = nn.Linear(*sizes).double()
    layer.weight.data = noise(sizes[1], sizes[0], seed=1)
    found, matrix = operator(layer, sizes[:1]), dense(layer, sizes[:1])
    # Behind the identity rows and norm are those of the matrix; behind one moving input, its column.
    after, _ = found.forward(moving(torch.eye(sizes[0]).double(), curvature=2.0), None)
    torch.testing.assert_close(after.unit[0], matrix.norm(dim=1))
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert float(after.lipschitz) == pytest.approx(norm, rel=1e-8)
    assert float(after.curvature) == pytest.approx(2 * norm, rel=1e-8)
    alone = torch.zeros(sizes[0], 1).double()
    alone[1] = 3.0
    after, _ = found.forward(moving(alone), None)
    torch.testing.assert_close(after.unit[0], 3 * matrix[:, 1].abs())
    assert float(after.lipschitz) == pytest.approx(3 * float(matrix[:, 1].norm()), rel=1e-8)
    for seed in range(20):
        jacobian = noise(sizes[0], 2, seed=seed) * noise(sizes[0], 1, seed=seed + 100).exp()
        after, _ = found.forward(moving(jacobian), None)
        whole = matrix @ jacobian
        assert float(after.lipschitz) >= float(torch.linalg.matrix_norm(whole, 2))
        assert (after.unit[0] >= whole.norm(dim=1)).all()


@pytest.mark.parametrize("sizes", [(5, 3), (3, 6)])
def test_an_operator_pulls_gradients_back_as_its_transpose_does(sizes: tuple[int, int]) -> None:
    layer = nn.Linear(*sizes).double()
    layer.weight.data = noise(sizes[1], sizes[0], seed=2)
    found, matrix = operator(layer, sizes[:1]), dense(layer, sizes[:1])
    row, count = noise(sizes[1], seed=3), totals()
    before = found.backward(one_row(row, row, curvature=1.5), None, count, HERE)
    exact = row @ matrix
    assert (before.low[0, 0] <= exact).all()
    assert (exact <= before.high[0, 0]).all()
    torch.testing.assert_close(before.low[0, 0], exact)
    torch.testing.assert_close(before.high[0, 0], exact)
    assert float(before.norm) == pytest.approx(float(exact.norm()), rel=1e-9)
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert before.curvature is not None
    assert float(before.curvature) == pytest.approx(1.5 * norm**2, rel=1e-7)
    assert float(count.gain) == pytest.approx(3 * norm, rel=1e-8)
    # A box: its corners are attained. A long box around short rows: the norms of the columns are.
    low, high = row - 0.3, row + 0.7
    before = found.backward(one_row(low, high), None, totals(), HERE)
    ends = [torch.where(matrix > 0, one[:, None], two[:, None]) for one, two in ((low, high), (high, low))]
    torch.testing.assert_close(before.low[0, 0], (ends[0] * matrix).sum(0))
    torch.testing.assert_close(before.high[0, 0], (ends[1] * matrix).sum(0))
    short = replace(one_row(low - 100, high + 100), norm=full(0.5)[None])
    before = found.backward(short, None, totals(), HERE)
    torch.testing.assert_close(before.high[0, 0], 0.5 * matrix.norm(dim=0))
    torch.testing.assert_close(before.low[0, 0], -0.5 * matrix.norm(dim=0))
    assert float(before.norm) == pytest.approx(0.5 * norm, rel=1e-8)
    last = found.backward(one_row(low, high, curvature=2.0), None, totals(), Place(1, last=True))
    assert last.low.shape[2] == sizes[1]
    assert last.curvature is not None
    assert float(last.curvature) == pytest.approx(2 * norm**2, rel=1e-7)


UNITS: dict[str, nn.Module] = {
    "softplus": nn.Softplus(3.0, 200.0),
    "log cosh": LogCosh(2.0),
    "abs": SmoothAbs(0.7),
    "tanh": nn.Tanh(),
    "GELU": nn.GELU(),
    "ELU": nn.ELU(),
}
SETS = [None, (0.3, 0.4), (-1.5, 0.2), (2.0, 1.0), (0.0, 0.05)]  # all of space, or center and how far


def unit(name: str) -> Pointwise:
    found = primitive(UNITS[name], (1,))
    assert isinstance(found, Pointwise)
    return found


def grid(found: Pointwise, place: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """σ' and σ'' at 40,001 points of a set."""
    low, high = (-9.0, 9.0) if place is None else (place[0] - place[1], place[0] + place[1])
    points = torch.linspace(low, high, 40_001, dtype=torch.float64)
    points = (points.sinh() if place is None else points) * found.sharpness
    return found.scalar.slope(points), found.scalar.curvature(points) * found.sharpness


def behind(place: tuple[float, float] | None, curvature: float = 0.0) -> tuple[ForwardBound, Range | None]:
    """One input that moves by 2, and where it lies."""
    bound = ForwardBound(full(2.0), full(2.0)[None], full(curvature))
    ends = None if place is None else (full(place[0] - place[1])[None], full(place[0] + place[1])[None])
    return bound, ends


@pytest.mark.parametrize("place", SETS)
@pytest.mark.parametrize("name", UNITS)
def test_one_unit_moves_and_curves_as_its_derivatives_do(
    name: str, place: tuple[float, float] | None
) -> None:
    found = unit(name)
    slopes, curvatures = grid(found, place)
    start, within = behind(place, curvature=5.0)
    after, memory = found.forward(start, within)
    steep, sharp = float(slopes.abs().max()), float(curvatures.abs().max())
    assert float(after.unit) == pytest.approx(2 * steep, rel=1e-4)
    assert float(after.lipschitz) == pytest.approx(2 * steep, rel=1e-4)
    assert float(after.curvature) == pytest.approx(4 * sharp + 5 * steep, rel=1e-3)
    for v in (1.5, -0.4):
        count = totals()
        before = found.backward(one_row(full(v), full(v)), memory, count, HERE)
        ends = sorted((v * float(slopes.min()), v * float(slopes.max())))
        assert [float(before.low), float(before.high)] == pytest.approx(ends, abs=1e-4)
        assert float(before.norm) == pytest.approx(abs(v) * steep, rel=1e-4)
        assert float(count.convex[1]) == pytest.approx(
            4 * max(0.0, float((v * curvatures).max())), rel=1e-3, abs=1e-9
        )
        assert float(count.concave[1]) == pytest.approx(
            4 * max(0.0, float((-v * curvatures).max())), rel=1e-3, abs=1e-9
        )
        assert float(count.gain) == pytest.approx(3 * steep, rel=1e-4)
        assert float(count.lipschitz) == pytest.approx(2 * abs(v) * steep, rel=1e-4)


@pytest.mark.parametrize("place", SETS)
@pytest.mark.parametrize("name", UNITS)
def test_the_max_rule_at_one_unit(name: str, place: tuple[float, float] | None) -> None:
    """sup_z Mσ'(z)² + vσ''(z) over the set, exactly where σ'' is known as a function of σ'."""
    found = unit(name)
    slopes, curvatures = grid(found, place)
    start, within = behind(place)
    _, memory = found.forward(start, within)
    for m in (0.0, 0.05, 1.0, 7.0):
        for low, high in ((-2.0, -1.0), (-1.0, 0.3), (4.0, 4.0)):
            before = found.backward(one_row(full(low), full(high), curvature=m), memory, totals(), HERE)
            truth = max(float((m * slopes**2 + v * curvatures).max()) for v in (low, high))
            assert before.curvature is not None
            assert float(before.curvature) >= truth - 1e-12
            if high > 0 and (name in ("softplus", "log cosh") or (name == "abs" and place is None)):
                assert float(before.curvature) <= truth * (1 + 1e-6) + 1e-9


def test_windows_that_share_an_entry() -> None:
    """Three windows of two among four entries: an inner entry is in two of them, and may be both maxima."""
    found, root = primitive(nn.MaxPool1d(2, 1), (1, 4)), math.sqrt(2)
    start = ForwardBound(full(1.0), torch.ones(1, 1, 4).double(), full(0.0))
    after, memory = found.forward(start, None)
    assert float(after.lipschitz) == pytest.approx(root)
    assert after.unit.tolist() == [[[1.0, 1.0, 1.0]]]
    assert float(after.curvature) == math.inf
    alone = ForwardBound(full(3.0), full(0.0, 3.0, 0.0, 0.0)[None, None], full(0.0))
    after, _ = found.forward(alone, None)
    assert after.unit.tolist() == [[[3.0, 3.0, 0.0]]]
    assert float(after.lipschitz) == pytest.approx(3 * root)
    row, count = full(-1.0, 2.0, 5.0)[None], totals()
    before = found.backward(one_row(row, row, curvature=1.0), memory, count, HERE)
    # Each window that holds an entry takes it, or does not.
    torch.testing.assert_close(before.low[0, 0, 0], full(-1.0, -1.0, 0.0, 0.0))
    torch.testing.assert_close(before.high[0, 0, 0], full(0.0, 2.0, 7.0, 5.0))
    assert (before.low[0, 0, 0] <= full(-1.0, -1.0, 0.0, 0.0)).all()
    assert (before.high[0, 0, 0] >= full(0.0, 2.0, 7.0, 5.0)).all()
    assert float(before.norm) == pytest.approx(root * math.sqrt(30))
    assert before.curvature is not None
    assert [float(v) for v in (before.curvature, count.convex[1], count.concave[1])] == [math.inf] * 3
    assert float(count.gain) == pytest.approx(3 * root)
    count = totals()
    nothing = found.backward(one_row(0 * row, 0 * row, curvature=0.0), memory, count, HERE)
    assert nothing.curvature is not None
    assert [float(v) for v in (nothing.curvature, count.convex[1], count.concave[1])] == [0.0] * 3


@pytest.mark.parametrize("place", [None, (0.4, 0.3)])
def test_a_sum_of_branches_in_one_dimension(place: tuple[float, float] | None) -> None:
    """x + u·s(wx): slopes 1 + u·w·s', curvature u·w²·s'', and M times the square of the largest gain."""
    w, u, m = 1.5, 0.75, 0.6
    into, out = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    into.weight.data.fill_(w)
    out.weight.data.fill_(u)
    inner = unit("softplus")
    found = graph(Residual(nn.Sequential(into, UNITS["softplus"], out)), (1,))
    slopes, curvatures = grid(inner, None if place is None else (w * place[0], w * place[1]))
    start, _ = behind(place, curvature=5.0)
    at = radius = None
    if place is not None:
        value, _, at = found.rounded(full(place[0])[None])
        radius = full(place[1] / 2)
        truth = place[0] + u * math.log1p(math.exp(3 * w * place[0])) / 3
        assert float(value) == pytest.approx(truth, rel=1e-12)
    after, trace = found.forward(start, at, radius)
    gain = 1 + u * w * float(slopes.max())
    assert float(after.unit) == pytest.approx(2 * gain, rel=1e-6)
    assert float(after.lipschitz) == pytest.approx(2 * gain, rel=1e-6)
    assert float(after.curvature) == pytest.approx(
        5 * gain + 4 * u * w**2 * float(curvatures.max()), rel=1e-6
    )
    for v in (2.0, -3.0):
        count = totals()
        before = found.backward(trace, one_row(full(v), full(v), curvature=m), count)
        ends = sorted((v * (1 + u * w * float(slopes.min())), v * gain))
        assert [float(before.low), float(before.high)] == pytest.approx(ends, rel=1e-6)
        assert float(before.low) <= ends[0] + 1e-9
        assert float(before.high) >= ends[1] - 1e-9
        assert float(before.norm) == pytest.approx(abs(v) * gain, rel=1e-6)
        assert float(count.gain) == pytest.approx(3 * gain, rel=1e-6)
        curved = u * w**2 * max(0.0, float((v * curvatures).max()))
        assert before.curvature is not None
        assert float(before.curvature) == pytest.approx(m * gain**2 + curved, rel=1e-6)
        (node,) = count.convex
        assert float(count.convex[node]) == pytest.approx(4 * curved, rel=1e-6, abs=1e-9)
        other = u * w**2 * max(0.0, float((-v * curvatures).max()))
        assert float(count.concave[node]) == pytest.approx(4 * other, rel=1e-6, abs=1e-9)
        assert float(count.lipschitz) == math.inf  # a branch is no cut of the network


def printed(layer: nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
    """α and β of eq:lipschitzconsts behind a layer, from α = 2 and β = 5/4·α² = 5 before it."""
    read = graph(nn.Sequential(LogCosh(1.25), layer), shape)
    once, twice = (paper_bound(read, Softmax(spread=h), 2.0) for h in (1.0, 2.0))  # √2·β + h·α²
    return math.sqrt(twice - once), (2 * once - twice) / math.sqrt(2)


def test_the_constants_that_the_paper_prints() -> None:
    matrix = nn.Linear(2, 2, bias=False)
    matrix.weight.data = torch.diag(torch.tensor([4.0, 1.0]))
    assert printed(matrix, (2,)) == pytest.approx((8.0, 20.0), rel=1e-8)
    assert printed(nn.Sigmoid(), (1,)) == pytest.approx((0.5, 1.25 + 0.1 * 4), rel=1e-8)
    sharpest = 4 / (3 * math.sqrt(3))
    assert printed(nn.Tanh(), (1,)) == pytest.approx((2.0, 5.0 + sharpest * 4), rel=1e-8)
    block = Residual(nn.Sequential(matrix, nn.Tanh()))
    assert printed(block, (2,)) == pytest.approx((10.0, 25.0 + sharpest * 64), rel=1e-8)
    pool = nn.MaxPool1d(2, 1)
    assert primitive(pool, (1, 4)).amplify(2.0) == pytest.approx(2 * math.sqrt(2))
    assert paper_bound(graph(pool, (1, 4)), Softmax(), 2.0) == math.inf
    assert paper_bound(graph(nn.ReLU(), (1,)), Softmax(), 2.0) == math.inf
    # A layer that does not move meets no kink.
    assert paper_bound(graph(nn.ReLU(), (1,)), Softmax(), 0.0) == 0.0


def test_shapes_behind_primitives() -> None:
    branch = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    assert graph(Residual(branch, nn.Linear(3, 2)), (3,)).out_shape == (2,)
    assert graph(Residual(nn.Identity()), (3,)).out_shape == (3,)
    assert primitive(nn.MaxPool1d(2), (1, 6)).out_shape == (1, 3)
    assert primitive(nn.Tanh(), (4,)).out_shape == (4,)
    assert primitive(nn.Linear(3, 5), (3,)).out_shape == (5,)


class _Crossed(nn.Module):
    """Two activations on one path and one on the other, concatenated, and one behind both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        once = torch.tanh(self.first(x))
        return torch.sigmoid(self.last(torch.cat([once, torch.tanh(once)], 1)))


@pytest.mark.parametrize(
    ("model", "shape", "depth"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), (3,), 0),
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), (3,), 2),
        (nn.Sequential(nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 2)), (1, 4), 1),
        (nn.Sequential(nn.Tanh(), Residual(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Tanh()))), (3,), 3),
        (_Crossed(), (3,), 3),
    ],
    ids=["affine", "chain", "windows", "sum", "concatenation"],
)
def test_the_depth_is_that_of_the_longest_path(model: nn.Module, shape: tuple[int, ...], depth: int) -> None:
    message = certificate_outlook(model.double().eval(), shape)
    assert [int(number) for number in re.findall(r"at depth (\d+)", message)] == ([depth] if depth else [])
    assert ("it is affine" in message) == (depth == 0)
