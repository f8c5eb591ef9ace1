"""The mutants themselves: what is changed, what is left alone, and that a seed fixes the sample."""

from __future__ import annotations

import pytest
from cosmic_ray.mutating import mutate_code

from tools.mutation import mutants as module
from tools.mutation.mutants import draw, mutants
from tools.mutation.operators import BY_NAME
from tools.mutation.targets import TARGETS, Target


@pytest.mark.parametrize(
    ("operator", "code", "occurrence", "changed"),
    [
        ("SwapNames", "x = torch.minimum(a, b)\n", 0, "x = torch.maximum(a, b)\n"),
        ("SwapNames", "def f(low, high):\n    return low\n", 0, "def f(low, high):\n    return high\n"),
        ("SwapNames", "def f(low):\n    return low\n", 0, None),
        ("DropOperand", "x = a + b * c\n", 0, "x = b * c\n"),
        ("DropOperand", "x = a + b * c\n", 1, "x = a\n"),
        ("DropOperand", "x = a + b * c\n", 2, "x = a + c\n"),
        ("DropOperand", "x = a - b\n", 0, "x = a\n"),
        ("DropCall", "x = a.abs().sqrt()\n", 0, "x = a.sqrt()\n"),
        ("DropCall", "x = a.mT @ b\n", 0, "x = a @ b\n"),
        ("ScaleNumber", "x = 1e-12\n", 0, "x = 0.0\n"),
        ("ScaleNumber", "x = 0.25\n", 1, "x = 0.5\n"),
        ("ScaleNumber", "x = 4\n", 0, None),
        ("DropStatement", "x = f(x)\ny = x\n", 0, "pass\ny = x\n"),
        ("DropStatement", "y = x\n", 0, None),
    ],
)
def test_the_operators_of_our_own(operator: str, code: str, occurrence: int, changed: str | None) -> None:
    found = mutate_code(code, BY_NAME[operator], occurrence)
    assert (found and " ".join(found.split())) == (changed and " ".join(changed.split()))


CODE = '''"""A docstring: 1 + 1."""

Shape = tuple[int, ...] | 1
EFFORT = 7


@decorated(1 + 1)
def bound(size: Array[2], other: int = 3) -> Array[4]:
    require(size > 5, "size", f"be above {5 + 1}", 5 + 2)
    if size == 6:
        raise ValueError(6 + 1)
    return size.reshape(8 + 1)


class Kind:
    def other(self) -> int:
        return 9
'''


def lines(target: Target) -> set[int]:
    return {mutant.place[0] for mutant in mutants(target)}


def test_what_decides_nothing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "source", lambda path: CODE)
    assert lines(Target("x.py")) == {4, 8, 9, 10, 17}
    assert lines(Target("x.py", never=("EFFORT", "Kind"))) == {8, 9, 10}
    assert lines(Target("x.py", only=("Kind.other",))) == {17}
    places = {(mutant.place, mutant.function) for mutant in mutants(Target("x.py"))}
    assert ((8, 39), "bound") in places  # the default, and no annotation
    assert not any(line == 8 and column != 39 for (line, column), _ in places)
    assert ((17, 15), "Kind.other") in places


def test_a_seed_fixes_the_sample() -> None:
    some = [target for target in TARGETS if target.path in ("norms.py", "certificates/knapsack.py")]
    small, large, other = draw(10, 1, some, 6), draw(20, 1, some, 6), draw(10, 2, some, 6)
    assert small == draw(10, 1, some, 6)
    assert set(small) < set(large)
    assert small != other
    assert len({mutant.id for mutant in large}) == len(large) >= 20
    for mutant in small:
        before, after = mutant.change()
        assert before != after


def test_a_uniform_sample_has_the_count_asked_for() -> None:
    some = [target for target in TARGETS if target.path in ("norms.py", "kernel/rounding.py")]
    small, large = draw(10, 1, some, None), draw(20, 1, some, None)
    assert (len(small), len(large)) == (10, 20)
    assert small == large[:10]


def test_every_target_is_there() -> None:
    """Files move, and functions are renamed: nothing may drop out of the list unnoticed."""
    for target in TARGETS:
        found = {
            name for mutant in mutants(target) for name in (mutant.function, mutant.function.split(".")[0])
        }
        assert found
        assert set(target.only) <= found
