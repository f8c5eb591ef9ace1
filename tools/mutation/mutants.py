"""All mutants of the kernel, on its syntax trees.

Comparisons, signs and directions of rounding are changed in all ways; of all other changes to a statement, or
to the head of a compound one, a seed draws one.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "src" / "certus" / "kernel"
SEED = 33

EFFORT = {
    "_AT_ONCE",
    "_CELLS",
    "_CORNER",
    "_EIGENVALUE_WORK",
    "_LEAST",
    "_NUMBERS",
    "_TOGETHER",
    "MOST_CLASSES",
}
"""Constants that decide how much is computed, and nothing that is proven."""

_OPPOSITE = (
    *(("up", "down"), ("mean_up", "mean_down"), ("normal_up", "normal_down"), ("min", "max")),
    *(("minimum", "maximum"), ("amin", "amax"), ("argmin", "argmax"), ("clamp_min", "clamp_max")),
    *(("cummin", "cummax"), ("floor", "ceil")),
)
_COUNTERPARTS = (
    *(("low", "high"), ("lower", "upper"), ("least", "most"), ("inner", "outer"), ("left", "right")),
    *(("first", "second"), ("row_norms", "column_norms"), ("in_shape", "out_shape"), ("slope", "curvature")),
    *(
        ("absolute", "absolute_transpose"),
        ("norm", "absolute_norm"),
        ("convex", "concave"),
        ("above", "below"),
    ),
    *(("length", "unit"), ("all", "any"), ("primitive", "action"), ("act", "transposed")),
)
_DIRECTIONS = {a: b for pair in _OPPOSITE for a, b in (pair, pair[::-1])}
_SWAPS = {a: b for pair in _COUNTERPARTS for a, b in (pair, pair[::-1])}
_DROPPED = ("abs", "sqrt", "clamp", "clamp_min", "clamp_max", "nan_to_num", "T", "mT", "flip", "exp", "log")
_SHAPING = ("flatten", "reshape", "unsqueeze", "squeeze", "expand", "permute", "movedim", "unflatten")
_REDUCING = (
    "sum",
    "amax",
    "amin",
    "max",
    "min",
    "any",
    "all",
    "cat",
    "stack",
    "split",
    "flip",
    "gather",
    "mean",
    "unbind",
    "cummax",
    "topk",
    "diagonal",
    "scatter_",
    "index_select",
    "argmax",
    "index_add_",
    "size",
)
_ROUNDED = ("up", "down")
_CONSTANTS = ("FEW", "TENS", "HUNDREDS", "SOME", "THOUSANDS", "MANY")

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE),
    **{
        a: (b,)
        for a, b in ((ast.Eq, ast.NotEq), (ast.NotEq, ast.Eq), (ast.Is, ast.IsNot), (ast.IsNot, ast.Is))
    },
    **{a: (b,) for a, b in ((ast.In, ast.NotIn), (ast.NotIn, ast.In))},
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change of one file.

    Attributes:
        path: in the kernel; function: "name" or "Class.name" around the change; "" outside of functions.
        lines: first and last line of the statement, or of the head of a compound one.
        digest: of the source of the function, or of the statement outside of functions.
        whole, old, new: the syntax tree of the file, the node that is replaced, and by which; None for pass.
    """

    id: str
    path: str
    function: str
    lines: tuple[int, int]
    digest: str
    whole: ast.Module
    old: ast.AST
    new: ast.AST | None

    def compiled(self) -> CodeType | None:
        """The file with the change; None if the compiled code is the same, or there is none."""
        try:
            code = compile(_replaced(self.whole, self.old, self.new), str(KERNEL / self.path), "exec")
        except (SyntaxError, ValueError, TypeError):
            return None
        return None if code == compile(self.whole, str(KERNEL / self.path), "exec") else code


@lru_cache
def mutants(path: str, source: str = "") -> tuple[Mutant, ...]:
    """All of one file, in a fixed order."""
    tree, changes, seen = ast.parse(source or (KERNEL / path).read_text()), [], Counter[str]()
    drawn: dict[tuple[int, int], list[tuple[_Place, ast.AST | None]]] = {}
    chosen: list[tuple[_Place, ast.AST | None]] = []
    for place in _places(tree, "", None):
        every, others = _ways(place.node, place.names)
        chosen += ((place, way) for way in every)
        drawn.setdefault(place.lines, []).extend((place, way) for way in others)
    for options in filter(None, drawn.values()):
        text = " ".join(_text(place.node) for place, _ in options)
        chosen.append(random.Random(f"{SEED} {path} {options[0][0].function} {text}").choice(options))
    for place, way in chosen:
        before, after = (_text(place.node), "pass" if way is None else _text(way))
        name = f"{path}:{place.function}: {before} → {after}"
        seen[name] += 1
        identity = name if seen[name] == 1 else f"{name} #{seen[name]}"
        changes.append(
            Mutant(identity, path, place.function, place.lines, place.digest, tree, place.node, way)
        )
    return tuple(changes)


def _text(node: ast.AST) -> str:
    """Source of a node, the head of a compound statement alone."""
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]


@dataclass(frozen=True)
class _Place:
    node: ast.AST
    function: str
    lines: tuple[int, int]
    digest: str
    names: frozenset[str]


def _places(
    tree: ast.AST,
    prefix: str,
    inside: tuple[str, str] | None,
    lines: tuple[int, int] = (0, 0),
    names: frozenset[str] = frozenset(),
) -> Iterator[_Place]:
    """Every node that counts, with the function around it and its digest (``inside``)."""
    for node in ast.iter_child_nodes(tree):
        if _silent(tree, node):
            continue
        around, span = inside, lines
        if isinstance(node, ast.FunctionDef) and inside is None:
            body = [part for part in node.body if not _docstring(part)]
            text = ast.unparse(
                ast.FunctionDef(node.name, node.args, body, node.decorator_list, node.returns, lineno=0)
            )
            known = frozenset(_names(node))
            for default in (*node.args.defaults, *node.args.kw_defaults):  # evaluated outside
                if default is not None:
                    yield from _places(
                        ast.Expr(default), prefix, ("", _digest(text)), (node.lineno, node.lineno)
                    )
            for part in body:
                yield from _places(
                    ast.Module([part], []), prefix, (prefix + node.name, _digest(text)), (0, 0), known
                )
            continue
        if isinstance(node, ast.ClassDef):
            yield from _places(node, f"{node.name}.", None)
            continue
        if isinstance(node, ast.stmt):
            if inside is None:
                around = ("", _digest(ast.unparse(node)))
            head = getattr(node, "test", getattr(node, "iter", None))
            end = head.end_lineno if isinstance(head, ast.expr) else node.end_lineno
            span = (node.lineno, end or node.lineno)
        if around is not None:
            yield _Place(node, around[0], span, around[1], names)
        yield from _places(node, prefix, around, span, names)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _silent(parent: ast.AST, node: ast.AST) -> bool:
    """Annotations, messages, assertions, types, effort; and shapes, where a mistake only raises."""
    match node:
        case ast.FunctionDef(name="__repr__"):
            return True
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.alias():
            return True
        case (
            ast.expr_context() | ast.operator() | ast.cmpop() | ast.boolop() | ast.unaryop() | ast.arguments()
        ):
            return not isinstance(parent, ast.Lambda)
        case ast.keyword(arg="strict" | "dtype" | "dim" | "dim1" | "dim2" | "keepdim") | ast.Pass():
            return True
        case ast.Assign(targets=[ast.Name(name)]) if name in EFFORT or _is_type(node.value):
            return True
        case ast.Assign(targets=[ast.Tuple(names)]) if any(
            isinstance(n, ast.Name) and n.id in EFFORT for n in names
        ):
            return True
    match parent:
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation) if node is annotation:
            return True
        case ast.ClassDef() if node in parent.decorator_list or node in parent.bases:
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in _SHAPING and node in parent.args:
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in _REDUCING and _axis(node):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")) if node is parent.slice:
            return True
    return _docstring(node)


def _axis(node: ast.AST) -> bool:
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    return negative or (isinstance(node, ast.Constant) and type(node.value) is int)


def _is_type(value: ast.AST) -> bool:
    text = ast.unparse(value)
    return text.startswith(("tuple[", "Callable[", "TypeVar", "np.ndarray[")) or text in (
        "Any",
        "Softmax | Hinge | None",
    )


def _ways(node: ast.AST, names: frozenset[str]) -> tuple[list[ast.AST | None], list[ast.AST | None]]:
    """The changes that are all made, and those of which one is drawn; None leaves a statement out."""
    every: list[ast.AST | None] = []
    others: list[ast.AST | None] = []
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in _COMPARISONS[type(operator)]:
                    every.append(_with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]]))
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            signs = isinstance(operator, ast.Add | ast.Sub | ast.Mult | ast.Div)
            (every if signs else others).append(_with(node, op=_ARITHMETIC[type(operator)]()))
            others += [left, right] if isinstance(operator, ast.Add | ast.Mult) else [left]
        case ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            every.append(_with(node, op=_ARITHMETIC[type(operator)]()))
            others.append(None)
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            every.append(operand)
        case ast.Attribute(ast.Name("math"), "inf"):
            others += [ast.UnaryOp(ast.USub(), node), ast.Constant(0.0)]
        case ast.Call(func=ast.Attribute(attr="nan_to_num")):
            for place, value in enumerate(node.args):
                filled = ast.Constant(0.0 if ast.unparse(value).endswith("inf") else 1.0)
                every.append(_with(node, args=[*node.args[:place], filled, *node.args[place + 1 :]]))
        case ast.Call(func=ast.Name("slack")):
            every.append(ast.Constant(0.0))
        case ast.Call(func=ast.Name(name)) if name in _ROUNDED:
            every += [_with(node, func=ast.Name(_DIRECTIONS[name], ast.Load())), node.args[0]]
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in _DIRECTIONS:
            every.append(_with(node, func=_renamed(node.func, _DIRECTIONS[name])))
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, first, second]):
            others.append(_with(node, args=[condition, second, first]))
        case ast.Name(name, ast.Load()) if name in _CONSTANTS:
            others.append(ast.Constant(0.0))
        case ast.Name(name, ast.Load()) if _SWAPS.get(name) in names:
            others.append(_renamed(node, _SWAPS[name]))
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in _SWAPS:
            others.append(_renamed(node, _SWAPS[name]))
        case ast.Attribute(value, "T" | "mT", ast.Load()):
            others.append(value)
        case ast.Constant(bool(value)):
            others.append(ast.Constant(not value))
        case ast.Constant(int(value)):
            others += [ast.Constant(value + 1), ast.Constant(value - 1)]
        case ast.Constant(float(value)):
            factors = (0.0, 1e3) if 0 < value < 1e-5 else (0.5, 2.0)
            others += [ast.Constant(value * factor if value else factor) for factor in factors]
        case ast.BoolOp(operator, values):
            others.append(_with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And()))
            others += [
                _with(node, values=values[:k] + values[k + 1 :])
                for k in range(len(values))
                if len(values) > 2
            ]
            others += values if len(values) == 2 else []
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(
            test, ast.Compare
        ):
            others.append(_with(node, test=ast.UnaryOp(ast.Not(), test)))
        case ast.Assign(targets=[ast.Name(name)]) if name in _names(node.value):
            others.append(None)
        case ast.Expr(ast.Call()):
            others.append(None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPED:
        others.append(node.func.value)
    return every, others


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _renamed(node: ast.AST, name: str) -> ast.AST:
    return _with(node, **{"id" if isinstance(node, ast.Name) else "attr": name})


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _replaced(tree: ast.Module, old: ast.AST, new: ast.AST | None) -> ast.Module:
    """The tree with one node replaced; all other nodes are shared."""
    leaf = ast.copy_location(new if new is not None else ast.Pass(), old)

    def walk(node: ast.AST) -> ast.AST:
        if node is old:
            return leaf
        changed = node
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                other = walk(value)
                if other is not value:
                    changed = _with(node, **{name: other})
            elif isinstance(value, list):
                parts = [walk(part) if isinstance(part, ast.AST) else part for part in value]
                if any(one is not two for one, two in zip(parts, value, strict=True)):
                    changed = _with(node, **{name: parts})
        return changed

    changed = walk(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)
