"""The tests and tools themselves: nothing in them looks at a clock or draws what nobody can draw again."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
CLOCKS = {"time", "datetime", "timeit", "sched", "secrets", "uuid"}
GENERATORS = {"default_rng", "Random", "RandomState", "SystemRandom"}


def moods(source: str) -> list[str]:
    """What makes the outcome of a test depend on the hour, on the machine's load, or on chance."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"line {node.lineno}: {name}" for name in names if name.split(".")[0] in CLOCKS]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            if called in GENERATORS and not node.args and not node.keywords:
                found.append(f"line {node.lineno}: {called} without a seed")
            if any(word.arg == "timeout" for word in node.keywords):
                found.append(f"line {node.lineno}: a timeout")
    return found


def test_no_test_has_moods() -> None:
    # The tool that tries mutants measures how much processor time tests take, to choose among them.
    tool = {TOOLS / "mutation" / name for name in ("trials.py", "oracle.py")}
    # The session of a soak lasts as long as it is asked to.
    tool |= {TOOLS / "soak" / "hour.py"}
    paths = {*HERE.rglob("*.py"), *TOOLS.rglob("*.py")} - tool
    assert len(paths) > 100
    assert {str(path): found for path in paths if (found := moods(path.read_text()))} == {}


def test_moods_are_seen() -> None:
    assert moods("import time\nfrom datetime import date\n") == ["line 1: time", "line 2: datetime"]
    assert moods("x = np.random.default_rng()") == ["line 1: default_rng without a seed"]
    assert moods("subprocess.run(['a'], timeout=3)") == ["line 1: a timeout"]
    assert moods("np.random.default_rng(0)\nimport math") == []
