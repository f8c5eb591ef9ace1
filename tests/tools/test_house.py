"""The measures of the house on a package small enough to count by hand."""

from __future__ import annotations

import runpy
from pathlib import Path

from tools.house import HERE, Recorder, binding_functions, code_lines, layers, static_measures

MODULE = '''"""A docstring
of two lines."""

LIMIT = """not a
docstring"""  # a comment


class Half:
    """One line."""

    limit = 2
    """The string below an attribute."""

    def of(self, whole):  # a comment
        found = whole / self.limit
        return found
'''


def test_code_lines_leave_out_comments_docstrings_and_blanks() -> None:
    assert code_lines(MODULE) == len(["LIMIT", "docstring", "class", "limit", "def", "found", "return"])


def test_a_function_inside_another_binds_for_itself() -> None:
    assert binding_functions("def f():\n    def g():\n        found = 1\n    return found\n", "found") == 1
    assert binding_functions("for found in range(3): ...\n", "found") == 0
    assert binding_functions("def f():\n    with open('x') as found: ...\n", "found") == 1


def test_a_checkout_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "src" / "certus"
    for folder in (package / "costs", tmp_path / "tests", package / "no_package"):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "costs" / "__init__.py").write_text(MODULE)
    (package / "norms.py").write_text("x = 1\n\n")
    (tmp_path / "tests" / "test_layers.py").write_text("LAYERS: list[str] = ['norms', 'costs']\n")
    assert static_measures(tmp_path) == {
        "files": 3,
        "lines": len(MODULE.splitlines()) + 2,
        "code lines": 8,
        "parts": 2,
        "layers": 2,
        "functions that bind `found`": 1,
    }


def test_the_layers_of_this_checkout_are_counted() -> None:
    assert layers(HERE / "tests" / "test_layers.py") == 7


def test_visits_are_calls_outside_of_imports(tmp_path: Path) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "entry.py").write_text("def start(bound):\n    return bound()\n")
    (tmp_path / "kernel" / "passes.py").write_text(
        "def bound():\n    return 1.0\n\n\nclass A:\n    x = bound()\n"
    )
    (tmp_path / "idle.py").write_text("def f():\n    return 1\n\n\nx = f()\n")
    recorder = Recorder(tmp_path)
    with recorder:
        names = [runpy.run_path(str(path)) for path in sorted(tmp_path.rglob("*.py"))]
        start, bound = (next(each[name] for each in names if name in each) for name in ("start", "bound"))
        start(bound)
    assert list(recorder.files) == ["entry.py", "kernel/passes.py"]
    assert recorder.before(("kernel/",)) == 1
    assert recorder.before(("smoothness/",)) == 2
