"""All mutants of the targets, and a sample of them drawn by a seed.

A *site* is one place in the code; several operators, or one in several ways, may change it. Sites are drawn,
and then one way for each, or numbers and signs would outweigh everything else.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code

from tools.mutation.operators import BY_NAME, OPERATORS
from tools.mutation.targets import SOURCES, Target

Place = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """The ``occurrence``-th change that an operator can make to a file.

    Attributes:
        place: line and column, from 1 and 0 on.
        function: "name" or "Class.name" around it, or "<module>".
    """

    path: str
    operator: str
    occurrence: int
    place: Place
    function: str

    @property
    def id(self) -> str:
        return f"{self.path}:{self.place[0]}:{self.place[1]}:{self.operator}:{self.occurrence}"

    def code(self) -> str:
        """The whole file with the change."""
        made = mutate_code(source(self.path), BY_NAME[self.operator], self.occurrence)
        assert isinstance(made, str)
        return made

    def change(self) -> tuple[str, str]:
        """The lines that differ, before and after."""
        lines = source(self.path).splitlines(), self.code().splitlines()
        differing = [
            step
            for step in difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
            if step[0] != "equal"
        ]
        starts, ends = differing[0], differing[-1]
        return (
            " ".join(line.strip() for line in lines[0][starts[1] : ends[2]]),
            " ".join(line.strip() for line in lines[1][starts[3] : ends[4]]),
        )


@lru_cache
def source(path: str) -> str:
    return (SOURCES / path).read_text()


def mutants(target: Target) -> list[Mutant]:
    """All of one file, in a fixed order."""
    shape = _Shape(source(target.path))
    nodes = list(ast_nodes(parso.parse(source(target.path))))
    found = []
    for operator in OPERATORS:
        occurrence = -1
        for node in nodes:
            for place, _ in operator.mutation_positions(node):
                occurrence += 1
                function, names = shape.around(place)
                named = {function, function.split(".")[0], *names}
                if (
                    shape.counts(place)
                    and not named & set(target.never)
                    and (not target.only or named & set(target.only))
                ):
                    found.append(Mutant(target.path, type(operator).__name__, occurrence, place, function))
    return found


def draw(count: int, seed: int, targets: Sequence[Target], per_file: int | None) -> list[Mutant]:
    """Mutants drawn by a seed, one for each site.

    With the same seed a larger sample contains the smaller one.

    Args:
        per_file: draw at least ``count`` mutants, from every file in proportion to its sites and at least
            this number; None: draw ``count`` mutants uniformly from the sites of all files.
    """
    sites: dict[str, dict[Place, list[Mutant]]] = {}
    for target in targets:
        sites[target.path] = defaultdict(list)
        for mutant in mutants(target):
            sites[target.path][mutant.place].append(mutant)
    if per_file is None:
        everywhere = [options for places in sites.values() for _, options in sorted(places.items())]
        compiling = filter(_compiles, _shuffled(everywhere, str(seed)))
        return list(itertools.islice(compiling, count))
    total = sum(map(len, sites.values()))
    drawn = []
    for path, places in sites.items():
        order = _shuffled([places[place] for place in sorted(places)], f"{seed} {path}")
        drawn += order[: max(per_file, -(-count * len(places) // total))]
    return [mutant for mutant in drawn if _compiles(mutant)]


def _shuffled(sites: list[list[Mutant]], seed: str) -> list[Mutant]:
    """The sites in random order, and one mutant of each."""
    chance = random.Random(seed)
    chance.shuffle(sites)
    return [chance.choice(options) for options in sites]


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.code(), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


class _Shape:
    """Where the functions of a file are, and what in it decides nothing."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        tree = ast.parse(text)
        self._silent = [self._span(node) for node in _silent(tree)]
        self._functions = list(self._named(tree, ""))

    def counts(self, place: Place) -> bool:
        return not any(start <= place < end for start, end in self._silent)

    def around(self, place: Place) -> tuple[str, list[str]]:
        """The outermost function, and the constants that are assigned, at this place of the module."""
        names = [name for (start, end), name in self._functions if start <= place < end]
        functions = [name for name in names if not name.startswith("=")]
        constants = [name[1:] for name in names if name.startswith("=")]
        return (functions[-1] if functions else "<module>"), constants

    def _named(self, tree: ast.AST, prefix: str) -> Iterator[tuple[tuple[Place, Place], str]]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.FunctionDef):
                yield self._span(node), prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from self._named(node, f"{node.name}.")
            elif isinstance(node, ast.Assign):
                names = [leaf.id for leaf in ast.walk(node.targets[0]) if isinstance(leaf, ast.Name)]
                yield from ((self._span(node), f"={name}") for name in names)
                if prefix:
                    yield from ((self._span(node), prefix + name) for name in names)

    def _span(self, node: ast.AST) -> tuple[Place, Place]:
        # ast counts bytes, parso characters.
        line, end = getattr(node, "lineno"), getattr(node, "end_lineno")  # noqa: B009
        start, stop = getattr(node, "col_offset"), getattr(node, "end_col_offset")  # noqa: B009
        return (line, self._characters(line, start)), (end, self._characters(end, stop))

    def _characters(self, line: int, offset: int) -> int:
        return len(self._lines[line - 1].encode()[:offset].decode())


def _silent(tree: ast.AST) -> Iterator[ast.AST]:
    """Annotations, messages, assertions, decorators, types; and shapes, where a mistake only raises."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.AST() as annotation) | ast.AnnAssign(annotation=annotation):
                yield annotation
            case ast.FunctionDef():
                yield from node.decorator_list
                if node.returns is not None:
                    yield node.returns
            case ast.ClassDef():
                yield from node.decorator_list
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                yield node
            case ast.keyword(arg="strict"):
                yield node
            case ast.Call(func=ast.Name("require")):
                yield from node.args[1:]
            case ast.Call(func=ast.Attribute(attr=name)) if name in _SHAPING:
                yield from node.args
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                yield node.slice
            case ast.Assign(targets=[ast.Name(name)]) if name in _TYPES:
                yield node


_SHAPING = ("flatten", "reshape", "unsqueeze", "squeeze", "expand", "permute", "movedim")
_TYPES = (
    "Shape",
    "Weights",
    "Absolute",
    "Stage",
    "Rule",
    "Trace",
    "_Trace",
    "Function",
    "Range",
    "Method",
    "Data",
)
