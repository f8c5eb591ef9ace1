"""Each kind of stage by itself, in cases that are small enough for the truth: what it says is exact there.

A whole network has room between its bounds and what is attained, in which a mistake of one stage can hide.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from certus.bounds.activations import Activation
from certus.bounds.network import read_layers, read_network
from certus.bounds.operators import merge_affine_steps
from certus.bounds.passes import Position, Reach, Rows, Stage, Totals, depth_of
from certus.layers import LogCosh, Residual, SmoothAbs
from tests.bounds.test_norms import dense, operator

HERE = Position("here")


def full(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stage(layer: nn.Module, shape: tuple[int, ...]) -> Stage:
    (step,) = merge_affine_steps(read_layers(layer.double().eval(), shape))
    return step.stage


def totals() -> Totals:
    return Totals(torch.full((1, 1), math.inf).double(), full(3.0))  # behind what gains 3


def moving(jacobian: Tensor, bend: float = 0.0) -> Reach:
    """Everywhere, behind layers of one constant Jacobian."""
    length = torch.linalg.matrix_norm(jacobian, 2).reshape(1)
    return Reach(length, jacobian.norm(dim=1).unsqueeze(0), full(bend))


def one_row(low: Tensor, high: Tensor, curvature: float | None = None) -> Rows:
    most = torch.maximum(low.abs(), high.abs()).norm().reshape(1, 1)
    return Rows(low[None, None], high[None, None], most, None if curvature is None else full(curvature)[None])


@pytest.mark.parametrize("sizes", [(5, 3), (3, 6)])
def test_an_affine_stage_moves_as_its_matrix_does(sizes: tuple[int, int]) -> None:
    layer = nn.Linear(*sizes).double()
    layer.weight.data = noise(sizes[1], sizes[0], seed=1)
    found, matrix = operator(layer, sizes[:1]), dense(layer, sizes[:1])
    # Behind the identity rows and norm are those of the matrix; behind one moving input, its column.
    after, _ = found.forward(moving(torch.eye(sizes[0]).double(), bend=2.0), None, found)
    torch.testing.assert_close(after.unit[0], matrix.norm(dim=1))
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert float(after.length) == pytest.approx(norm, rel=1e-8)
    assert float(after.curvature) == pytest.approx(2 * norm, rel=1e-8)
    alone = torch.zeros(sizes[0], 1).double()
    alone[1] = 3.0
    after, _ = found.forward(moving(alone), None, found)
    torch.testing.assert_close(after.unit[0], 3 * matrix[:, 1].abs())
    assert float(after.length) == pytest.approx(3 * float(matrix[:, 1].norm()), rel=1e-8)
    for seed in range(20):
        jacobian = noise(sizes[0], 2, seed=seed) * noise(sizes[0], 1, seed=seed + 100).exp()
        after, _ = found.forward(moving(jacobian), None, found)
        whole = matrix @ jacobian
        assert float(after.length) >= float(torch.linalg.matrix_norm(whole, 2))
        assert (after.unit[0] >= whole.norm(dim=1)).all()


@pytest.mark.parametrize("sizes", [(5, 3), (3, 6)])
def test_an_affine_stage_pulls_rows_as_its_transpose_does(sizes: tuple[int, int]) -> None:
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
    assert float(before.length) == pytest.approx(float(exact.norm()), rel=1e-9)
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
    short = replace(one_row(low - 100, high + 100), length=full(0.5)[None])
    before = found.backward(short, None, totals(), HERE)
    torch.testing.assert_close(before.high[0, 0], 0.5 * matrix.norm(dim=0))
    torch.testing.assert_close(before.low[0, 0], -0.5 * matrix.norm(dim=0))
    assert float(before.length) == pytest.approx(0.5 * norm, rel=1e-8)
    last = found.backward(one_row(low, high, curvature=2.0), None, totals(), Position("here", ends=True))
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


def unit(name: str) -> Activation:
    found = stage(UNITS[name], (1,))
    assert isinstance(found, Activation)
    return found


def grid(found: Activation, place: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """σ' and σ'' at 40,001 points of a set."""
    low, high = (-9.0, 9.0) if place is None else (place[0] - place[1], place[0] + place[1])
    points = torch.linspace(low, high, 40_001, dtype=torch.float64)
    points = (points.sinh() if place is None else points) * found.sharpness
    return found.slope(points), found.curvature(points) * found.sharpness


def behind(place: tuple[float, float] | None, bend: float = 0.0) -> tuple[Reach, Tensor | None]:
    """One input that moves by 2 in a ball of half the size."""
    reach = Reach(full(2.0), full(2.0)[None], full(bend))
    if place is None:
        return reach, None
    return replace(reach, center=full(place[0])[None], error=full(0.0)[None]), full(place[1] / 2)


@pytest.mark.parametrize("place", SETS)
@pytest.mark.parametrize("name", UNITS)
def test_one_unit_moves_and_bends_as_its_derivatives_do(name: str, place: tuple[float, float] | None) -> None:
    found = unit(name)
    slopes, bends = grid(found, place)
    reach, radius = behind(place, bend=5.0)
    after, saved = found.forward(reach, radius, found)
    steep, bent = float(slopes.abs().max()), float(bends.abs().max())
    assert float(after.unit) == pytest.approx(2 * steep, rel=1e-4)
    assert float(after.length) == pytest.approx(2 * steep, rel=1e-4)
    assert float(after.curvature) == pytest.approx(4 * bent + 5 * steep, rel=1e-3)
    for v in (1.5, -0.4):
        count = totals()
        before = found.backward(one_row(full(v), full(v)), saved, count, HERE)
        ends = sorted((v * float(slopes.min()), v * float(slopes.max())))
        assert [float(before.low), float(before.high)] == pytest.approx(ends, abs=1e-4)
        assert float(before.length) == pytest.approx(abs(v) * steep, rel=1e-4)
        assert float(count.convex["here"]) == pytest.approx(
            4 * max(0.0, float((v * bends).max())), rel=1e-3, abs=1e-9
        )
        assert float(count.concave["here"]) == pytest.approx(
            4 * max(0.0, float((-v * bends).max())), rel=1e-3, abs=1e-9
        )
        assert float(count.gain) == pytest.approx(3 * steep, rel=1e-4)
        assert float(count.lipschitz) == pytest.approx(2 * abs(v) * steep, rel=1e-4)


@pytest.mark.parametrize("place", SETS)
@pytest.mark.parametrize("name", UNITS)
def test_the_max_rule_at_one_unit(name: str, place: tuple[float, float] | None) -> None:
    """sup_z Mσ'(z)² + vσ''(z) over the set, exactly where σ'' is known as a function of σ'."""
    found = unit(name)
    slopes, bends = grid(found, place)
    reach, radius = behind(place)
    _, saved = found.forward(reach, radius, found)
    for m in (0.0, 0.05, 1.0, 7.0):
        for low, high in ((-2.0, -1.0), (-1.0, 0.3), (0.5, 2.0), (4.0, 4.0)):
            before = found.backward(one_row(full(low), full(high), curvature=m), saved, totals(), HERE)
            truth = max(float((m * slopes**2 + v * bends).max()) for v in (low, high))
            assert before.curvature is not None
            assert float(before.curvature) >= truth - 1e-12
            if high > 0 and (name in ("softplus", "log cosh") or (name == "abs" and place is None)):
                assert float(before.curvature) <= truth * (1 + 1e-6) + 1e-9


def test_windows_that_share_an_entry() -> None:
    """Three windows of two among four entries: an inner entry is in two of them, and may be both maxima."""
    found, root = stage(nn.MaxPool1d(2, 1), (1, 4)), math.sqrt(2)
    reach = Reach(full(1.0), torch.ones(1, 1, 4).double(), full(0.0))
    after, saved = found.forward(reach, None, found)
    assert float(after.length) == pytest.approx(root)
    assert after.unit.tolist() == [[[1.0, 1.0, 1.0]]]
    assert float(after.curvature) == math.inf
    alone = Reach(full(3.0), full(0.0, 3.0, 0.0, 0.0)[None, None], full(0.0))
    after, _ = found.forward(alone, None, found)
    assert after.unit.tolist() == [[[3.0, 3.0, 0.0]]]
    assert float(after.length) == pytest.approx(3 * root)
    row, count = full(-1.0, 2.0, 5.0)[None], totals()
    before = found.backward(one_row(row, row, curvature=1.0), saved, count, HERE)
    # Each window that holds an entry takes it, or does not.
    torch.testing.assert_close(before.low[0, 0, 0], full(-1.0, -1.0, 0.0, 0.0))
    torch.testing.assert_close(before.high[0, 0, 0], full(0.0, 2.0, 7.0, 5.0))
    assert (before.low[0, 0, 0] <= full(-1.0, -1.0, 0.0, 0.0)).all()
    assert (before.high[0, 0, 0] >= full(0.0, 2.0, 7.0, 5.0)).all()
    assert float(before.length) == pytest.approx(root * math.sqrt(30))
    assert before.curvature is not None
    assert [float(v) for v in (before.curvature, count.convex["here"], count.concave["here"])] == [
        math.inf
    ] * 3
    assert float(count.gain) == pytest.approx(3 * root)
    count = totals()
    nothing = found.backward(one_row(0 * row, 0 * row, curvature=0.0), saved, count, HERE)
    assert nothing.curvature is not None
    assert [float(v) for v in (nothing.curvature, count.convex["here"], count.concave["here"])] == [0.0] * 3


@pytest.mark.parametrize("place", [None, (0.4, 0.3)])
def test_a_sum_of_branches_in_one_dimension(place: tuple[float, float] | None) -> None:
    """x + u·s(wx): slopes 1 + u·w·s', curvature u·w²·s'', and M times the square of the largest gain."""
    w, u, m = 1.5, 0.75, 0.6
    into, out = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    into.weight.data.fill_(w)
    out.weight.data.fill_(u)
    inner = unit("softplus")
    found = stage(Residual(nn.Sequential(into, UNITS["softplus"], out)), (1,))
    slopes, bends = grid(inner, None if place is None else (w * place[0], w * place[1]))
    reach, radius = behind(place, bend=5.0)
    after, saved = found.forward(reach, radius, found)
    gain = 1 + u * w * float(slopes.max())
    assert float(after.unit) == pytest.approx(2 * gain, rel=1e-6)
    assert float(after.length) == pytest.approx(2 * gain, rel=1e-6)
    assert float(after.curvature) == pytest.approx(5 * gain + 4 * u * w**2 * float(bends.max()), rel=1e-6)
    if place is not None:
        assert after.center is not None
        truth = place[0] + u * math.log1p(math.exp(3 * w * place[0])) / 3
        assert float(after.center) == pytest.approx(truth, rel=1e-12)
    for v in (2.0, -3.0):
        count = totals()
        before = found.backward(one_row(full(v), full(v), curvature=m), saved, count, HERE)
        ends = sorted((v * (1 + u * w * float(slopes.min())), v * gain))
        assert [float(before.low), float(before.high)] == pytest.approx(ends, rel=1e-6)
        assert float(before.low) <= ends[0] + 1e-9
        assert float(before.high) >= ends[1] - 1e-9
        assert float(before.length) == pytest.approx(abs(v) * gain, rel=1e-6)
        assert float(count.gain) == pytest.approx(3 * gain, rel=1e-6)
        curved = u * w**2 * max(0.0, float((v * bends).max()))
        assert before.curvature is not None
        assert float(before.curvature) == pytest.approx(m * gain**2 + curved, rel=1e-6)
        (path,) = count.convex
        assert float(count.convex[path]) == pytest.approx(4 * curved, rel=1e-6, abs=1e-9)
        other = u * w**2 * max(0.0, float((-v * bends).max()))
        assert float(count.concave[path]) == pytest.approx(4 * other, rel=1e-6, abs=1e-9)
        assert float(count.lipschitz) == math.inf  # a branch is no cut of the network


def test_the_constants_that_the_paper_prints() -> None:
    """α and β of eq:lipschitzconsts behind each kind of stage, from α = 2 and β = 5 before it."""
    matrix = nn.Linear(2, 2, bias=False)
    matrix.weight.data = torch.diag(torch.tensor([4.0, 1.0]))
    assert stage(matrix, (2,)).paper_constants(2.0, 5.0) == pytest.approx((8.0, 20.0), rel=1e-8)
    assert stage(nn.MaxPool1d(2, 1), (1, 4)).paper_constants(2.0, 5.0) == pytest.approx(
        (2 * math.sqrt(2), math.inf)
    )
    assert stage(nn.Sigmoid(), (1,)).paper_constants(2.0, 5.0) == pytest.approx(
        (0.5, 1.25 + 0.1 * 4), rel=1e-8
    )
    bend = 4 / (3 * math.sqrt(3))
    assert stage(nn.Tanh(), (1,)).paper_constants(2.0, 5.0) == pytest.approx((2.0, 5.0 + bend * 4), rel=1e-8)
    assert stage(nn.ReLU(), (1,)).paper_constants(0.0, 0.0) == (0.0, 0.0)  # what does not move meets no kink
    block = Residual(nn.Sequential(matrix, nn.Tanh()))
    assert stage(block, (2,)).paper_constants(2.0, 5.0) == pytest.approx((10.0, 25.0 + bend * 64), rel=1e-8)


def test_shapes_behind_stages() -> None:
    branch = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    assert stage(Residual(branch, nn.Linear(3, 2)), (3,)).output_shape((3,)) == (2,)
    assert stage(Residual(nn.Identity()), (3,)).output_shape((3,)) == (3,)
    assert stage(nn.MaxPool1d(2), (1, 6)).output_shape((1, 6)) == (1, 3)
    assert stage(nn.Tanh(), (4,)).output_shape((4,)) == (4,)
    assert stage(nn.Linear(3, 5), (3,)).output_shape((3,)) == (5,)


class _Crossed(nn.Module):
    """Two activations on one way, one on the other, put side by side, and one behind both."""

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
    ids=["affine", "chain", "windows", "sum", "web"],
)
def test_the_depth_is_that_of_the_longest_way(model: nn.Module, shape: tuple[int, ...], depth: int) -> None:
    assert depth_of(read_network(model.double().eval(), shape)) == depth
