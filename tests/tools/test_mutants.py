"""The mutants of the kernel: what is changed, what is left alone, and what only loosens a bound."""

from __future__ import annotations

import math

import pytest

from tests.tools.kernel_problems import DOWN, SAME, UP, compare, evaluate, names
from tools.mutation.mutants import KERNEL, mutants


def changes(source: str) -> list[str]:
    return [mutant.id.split(": ", 1)[1] for mutant in mutants("x.py", source)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a < b", {"a < b → a <= b", "a < b → a > b", "a < b → a >= b"}),
        ("a is b", {"a is b → a is not b"}),
        ("a + b", {"a + b → a - b"}),
        ("a / b", {"a / b → a * b"}),
        ("-a", {"-a → a"}),
        ("up(a, b)", {"up(a, b) → down(a, b)", "up(a, b) → a"}),
        ("slack(3)", {"slack(3) → 0.0"}),
        ("a.amax(1)", {"a.amax(1) → a.amin(1)"}),
        ("math.ceil(a)", {"math.ceil(a) → math.floor(a)"}),
        ("a.nan_to_num(math.inf)", {"a.nan_to_num(math.inf) → a.nan_to_num(0.0)"}),
    ],
)
def test_comparisons_signs_and_directions_are_changed_in_all_ways(
    expression: str, expected: set[str]
) -> None:
    assert expected <= set(changes(f"def f():\n    return {expression}\n"))


def test_of_other_changes_to_a_statement_one_is_drawn() -> None:
    found = changes("def f(low, high):\n    return g(low, high, 3, True)\n")
    assert len(found) == 1
    assert found == changes("\n\ndef f(low, high):\n    return g(low, high, 3, True)\n")  # lines do not count


def test_statements_without_effect_are_not_mutated() -> None:
    assert changes('"""1 + 1"""\nfrom a import b\n_AT_ONCE = 7\nShape = tuple[int, ...]\n') == []
    assert changes("def f(a: A[1]) -> B[2]:\n    assert a\n    raise E(f'{1 + 1}')\n") == []
    assert changes("def f(a):\n    return a.reshape(1 + 1)\n") == []


def test_a_result_belongs_to_the_source_of_its_function() -> None:
    sources = (
        "def f(a):\n    return a + 1\n",
        'def f(a):\n    """Words."""\n\n    return (a + 1)\n\ndef g():\n    return 2\n',
        "def f(a):\n    b = 3\n    return a + 1\n",
    )
    first, same, other = (
        next(each.digest for each in mutants("x.py", source) if "a + 1" in each.id) for source in sources
    )
    assert first == same != other


def test_a_mutant_compiles_to_other_code() -> None:
    mutant = next(each for each in mutants("x.py", "def f(a, b):\n    return a < b\n") if ">=" in each.id)
    code, names = mutant.compiled(), dict[str, object]()
    assert code is not None
    exec(code, names)
    changed = names["f"]
    assert callable(changed)
    assert changed(2, 1) is True


def test_every_file_of_the_kernel_has_mutants_with_names_of_their_own() -> None:
    every = [mutant.id for path in KERNEL.glob("*.py") for mutant in mutants(path.name)]
    assert len(every) == len(set(every)) > 2000
    assert {path.name for path in KERNEL.glob("*.py")} - {name.split(":")[0] for name in every} == {
        "__init__.py"
    }


@pytest.mark.parametrize(
    ("direction", "before", "after", "kind"),
    [
        (UP, [1.0, 2.0], [1.0, 2.0], "equal"),
        (UP, [1.0, 2.0], [1.0, 2.5], "loosens"),
        (UP, [1.0, 2.0], [1.5, 1.9], "tightens"),
        (UP, [1.0], [math.nan], "tightens"),
        (UP, [1.0], "refused", "loosens"),
        (UP, "refused", [math.inf], "tightens"),
        (UP, [1.0], "raises ValueError", "raises"),
        (DOWN, [1.0], [0.5], "loosens"),
        (DOWN, [1.0], [1.5], "tightens"),
        (SAME, [1.0], [1.5], "differs"),
        (UP, [1.0], [1.0, 2.0], "differs"),
    ],
)
def test_only_looser_bounds_are_called_loose(
    direction: int, before: object, after: object, kind: str
) -> None:
    assert compare([[direction, before]], [[direction, after]]) == kind


@pytest.mark.parametrize("family", sorted({name.split()[0] for name in names()}))
def test_every_family_of_fixed_problems_has_results(family: str) -> None:
    results = [result for _, result in evaluate(f"{family} 1")]
    assert not [result for result in results if isinstance(result, str) and result.startswith("raises")]
    assert any(isinstance(result, list) for result in results)
