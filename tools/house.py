"""Measure the size of the package and the way through it.

    python -m tools.house              # this checkout
    python -m tools.house ../before    # another checkout beside it, as one table

Lines and names are read from the sources under ``src/certus``. The way is that of ``certus certify`` on eight
samples of a small run: a profile hook notes every file of the package whose functions are called. Running the
body of a module or of a class is an import, not a visit, and so is everything that it calls.

*Before the first mathematics* are the files visited before the first call into `MATHEMATICS`: the bounds of
the network and the proofs about each sample. Losses and costs are not counted as mathematics here: a run
constructs them long before it bounds anything.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

HERE = Path(__file__).resolve().parents[1]
MATHEMATICS = ("kernel/", "certificates/proven/", "bounds/", "smoothness/")
"""Folders of ``src/certus`` whose functions bound a network or a sample, here and in earlier layouts."""

TRAIN = ["train", "digits", "--epochs", "1", "-o", "run"]
CERTIFY = ["certify", "run", "--samples", "8", "--rho", "0.01"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="another checkout, shown before this one")
    options = parser.parse_args()
    before = {str(options.other): measure(options.other.resolve())} if options.other else {}
    print("\n".join(table(before | {"this checkout": measure(HERE)})))


def measure(root: Path) -> dict[str, int]:
    """Return every measure of a checkout by its name."""
    return static_measures(root) | _run_in(root)


def table(measured: dict[str, dict[str, int]]) -> list[str]:
    """Lay out measures as the lines of a Markdown table with one column per checkout.

    >>> print("\\n".join(table({"before": {"files": 12}, "after": {"files": 7}})))
    | measure | before | after |
    |---|---:|---:|
    | files | 12 | 7 |
    """
    columns = list(measured.values())
    rows = [[name, *(f"{column[name]:,}" for column in columns)] for name in columns[0]]
    return [
        f"| measure | {' | '.join(measured)} |",
        "|---|" + "---:|" * len(columns),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


# --- Sources ---


def static_measures(root: Path) -> dict[str, int]:
    """Return the measures that need no import: files, lines, parts, layers, functions that bind ``found``."""
    package = root / "src" / "certus"
    texts = [path.read_text() for path in sorted(package.rglob("*.py"))]
    entries = {path.name.removesuffix(".py") for path in package.iterdir() if _is_part(path)}
    return {
        "files": len(texts),
        "lines": sum(len(text.splitlines()) for text in texts),
        "code lines": sum(map(code_lines, texts)),
        "parts": len(entries),
        "layers": layers(root / "tests" / "test_layers.py"),
        "functions that bind `found`": sum(binding_functions(text, "found") for text in texts),
    }


def _is_part(path: Path) -> bool:
    if path.is_dir():
        return (path / "__init__.py").exists()
    return path.suffix == ".py" and not path.name.startswith("__")


def code_lines(text: str) -> int:
    """Count the lines that hold code: no comment, no docstring, no blank line.

    >>> code_lines('def f():\\n    "A docstring."\\n\\n    return 1  # one\\n')
    2
    """
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:  # also the string below an attribute
            case ast.Expr(value=ast.Constant(value=str())):
                docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    empty |= {tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def layers(path: Path) -> int:
    """Return the length of the list ``LAYERS`` in the test of layers; 0 without such a test."""
    if not path.exists():
        return 0
    for node in ast.parse(path.read_text()).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(target, ast.Name) and target.id == "LAYERS" for target in targets):
            return len(node.value.elts)  # type: ignore[attr-defined]
    return 0


def binding_functions(text: str, name: str) -> int:
    """Count the functions that bind a name, by an assignment, a loop or a parameter.

    >>> binding_functions("def f(found): ...\\ndef g():\\n    def h():\\n        found = 1\\n", "found")
    2
    """
    return sum(
        name in _bound_names(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _bound_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the parameters and stored names of a function, without those of functions inside it."""
    names: set[str] = set()
    open_nodes: list[ast.AST] = [function.args, *function.body]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            open_nodes += ast.iter_child_nodes(node)
    return names


# --- In a process of its own ---


def _run_in(root: Path) -> dict[str, int]:
    """Measure names and visits in a process that imports the package of this checkout."""
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:

        def python(*arguments: str) -> str:
            command = [sys.executable, "-P", *arguments]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)} failed in {root}:\n{done.stderr}")
            return done.stdout

        python("-m", "certus", *TRAIN)
        python(str(Path(__file__).resolve()), "--worker", str(root))
        measures: dict[str, int] = json.loads((Path(folder) / "measures.json").read_text())
    return measures


def _work(root: Path) -> None:
    """Measure in this process, and write ``measures.json``."""
    package = root / "src" / "certus"
    recorder = Recorder(package)
    start = _command(package)
    with recorder:
        start()
    measures = promised_names() | {
        "files visited by `certify` before the first mathematics": recorder.before(MATHEMATICS),
        "files visited by `certify`": len(recorder.files),
    }
    Path("measures.json").write_text(json.dumps(measures))


def _command(package: Path) -> Callable[[], None]:
    import certus.__main__

    assert Path(certus.__file__).is_relative_to(package), certus.__file__

    def start() -> None:
        sys.argv = ["certus", *CERTIFY]
        try:
            certus.__main__.start()
        except SystemExit as end:
            if end.code:
                raise

    return start


def promised_names() -> dict[str, int]:
    """Count the names in ``certus.__all__``, and those in the ``__all__`` of the parts among them."""
    import certus

    things = [getattr(certus, name) for name in certus.__all__]
    parts = [thing for thing in things if isinstance(thing, ModuleType)]
    return {
        "names promised at the top level, parts included": len(things),
        "names promised in parts": sum(len(part.__all__) for part in parts),
    }


class Recorder:
    """Profile hook that notes the files below a folder whose functions are called, in their order.

    Args:
        folder: the package; calls elsewhere are not noted.
    """

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, None] = {}  # an ordered set
        self._prefix = f"{folder}{os.sep}"
        self._importing = threading.local()

    def __enter__(self) -> Recorder:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def before(self, folders: tuple[str, ...]) -> int:
        """Return how many files were visited before the first in one of these folders."""
        for count, file in enumerate(self.files):
            if file.startswith(folders):
                return count
        return len(self.files)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(self._prefix):
            return
        depth: int = getattr(self._importing, "depth", 0)
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or of a class
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and depth == 0:
            self.files.setdefault(code.co_filename.removeprefix(self._prefix))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _work(Path(sys.argv[2]))
    else:
        main()
