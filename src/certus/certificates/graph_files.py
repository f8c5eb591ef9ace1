"""Networks, costs, losses and domains as files, which ``certus.kernel.graph_files`` reads.

    graph.json            {"graph": {"nodes", "moves"}, "cost", "loss", "domain"}, and "columns" of a table
    graph.safetensors     the tensors that they name

Activations, primitives and costs of the user's own code are not written: ``UnsupportedError`` names them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from certus.bounds.equivalence import random_points
from certus.certificates.problem import FunctionModule, same_parts
from certus.errors import ArgumentError, UnsupportedError, VerificationError
from certus.kernel.costs import Cost, Domain
from certus.kernel.graph import Graph, Node
from certus.kernel.graph_files import KINDS, build_graph, parse_object, parse_tensors, read_bytes
from certus.kernel.losses import Loss
from certus.kernel.operators import Affine, Product, Transposed
from certus.kernel.passes import Primitive, Refused
from certus.kernel.pointwise import Scalar, scalar
from certus.kernel.problem import Problem
from certus.kernel.tree_profiles import TreeProblem
from certus.storage.write import write_atomically, write_json

GRAPH, TENSORS = "graph.json", "graph.safetensors"

Description = tuple[dict[str, Any], dict[str, Tensor]]

_AT_ONCE = 512
_SIZES = (1e-3, 1.0, 30.0, 1e3)  # of points away from the inputs
_CLOSE = 1e-7  # of outputs: other orders of summation
_FIRST = ("matrix", "factors", "weight")  # names of the only tensor of weights


def describe_graph(graph: Graph) -> Description:
    """Return the description of a graph and its tensors; raises ``UnsupportedError`` for the user's own
    parts."""
    tensors: dict[str, Tensor] = {}
    nodes = [_node(number, node, tensors) for number, node in enumerate(graph.nodes)]
    moves = [_claims(node.moves) for node in graph.nodes if node.moves is not None]
    return {"nodes": nodes, "moves": moves[0] if moves else None}, tensors


def describe_cost(cost: Cost) -> Description:
    """Return the description of a cost and its tensors; raises ``UnsupportedError`` for a user's own."""
    return _described(
        "cost", cost, f"the cost {', '.join(getattr(cost, 'assumptions', ())) or type(cost).__name__}"
    )


def describe_loss(loss: Loss) -> Description:
    """Return the description of a loss, which has no tensors."""
    return _described("loss", loss, type(loss).__name__)


def describe_domain(domain: Domain) -> Description:
    """Return the description of a domain and its tensors."""
    return _described("domain", domain, "the domain")


def describe_problem(problem: Problem | TreeProblem) -> Description:
    """Return the descriptions of graph, cost, loss and domain, or of trees, and the tensors of all."""
    if isinstance(problem, TreeProblem):
        ensemble, tensors = _described("ensemble", problem.ensemble, "trees")
        prices, more = _described("prices", problem.cost, "prices")
        return {"ensemble": ensemble, "cost": prices, "loss": str(problem.loss)}, tensors | more
    parts = {
        "graph": describe_graph(problem.graph),
        "cost": describe_cost(problem.cost),
        "loss": describe_loss(problem.loss),
        "domain": describe_domain(problem.domain),
    }
    tensors = {name: tensor for _, own in parts.values() for name, tensor in own.items()}
    description: dict[str, Any] = {name: entry for name, (entry, _) in parts.items()}
    if problem.columns is not None:
        description["columns"] = [list(group) for group in problem.columns.groups]
    if problem.precision is not None:
        description["deployment"] = problem.precision
    return description, tensors


def save_problem(folder: Path, problem: Problem) -> None:
    """Write ``graph.json`` and ``graph.safetensors`` into a folder."""
    description, tensors = describe_problem(problem)
    write_atomically(folder / TENSORS, save(tensors))
    write_json(folder / GRAPH, description)


def load_graph(folder: Path | str, name: str = GRAPH) -> nn.Module:
    """Load the network of a certificate as a module, for deployment.

    It computes in float64 and on the processor, as the bounds assume, and returns float64. A log-softmax at
    the end of the model is not part of the network. Nothing in the files is executed.

    Args:
        folder: holds ``graph.json`` and ``graph.safetensors``; name: of the JSON file, if different.
    """
    folder = Path(folder)
    try:
        tensors = parse_tensors(read_bytes((folder / name).with_suffix(".safetensors")))
        graph = build_graph(parse_object(read_bytes(folder / name)).get("graph"), tensors)
    except Refused as reason:
        raise ArgumentError(f"`folder` must hold the files of a network; got {folder}: {reason}.") from None
    return FunctionModule(lambda points: graph.apply(points.cpu().double()))


def require_same_problem(file: Path, stored: Problem | TreeProblem, expected: Problem | TreeProblem) -> None:
    """Raise ``VerificationError`` unless the files of a certificate describe the problem of a run.

    Cost, loss, domain and trees must be the same, and no other columns discrete. A network must compute the
    same up to rounding, at the stored rows and far from them.
    """
    if part := _differing_part(stored, expected):
        raise VerificationError(f"{file} is not verified: it is not about the {part} of the run.")


def _differing_part(stored: Problem | TreeProblem, expected: Problem | TreeProblem) -> str:
    """The name of a part that differs; empty if none does."""
    if type(stored) is not type(expected):
        return "kind of model"
    names = ["cost", "loss", *(["ensemble"] if isinstance(stored, TreeProblem) else ["domain", "precision"])]
    for name in names:
        if not same_parts(getattr(stored, name), getattr(expected, name)):
            return name
    if isinstance(stored, Problem) and isinstance(expected, Problem):
        columns, known = (
            set() if each.columns is None else {*each.columns.groups} for each in (stored, expected)
        )
        if not columns <= known:
            return "columns"
        far = (random_points((size,), stored.graph.shape) for size in _SIZES)
        for points in (*stored.inputs.split(_AT_ONCE), *far):
            outputs, own = stored.graph.apply(points), expected.graph.apply(points)
            if outputs.shape != own.shape or not torch.allclose(outputs, own, _CLOSE, _CLOSE):
                return "network"
    return ""


def _node(number: int, node: Node, tensors: dict[str, Tensor]) -> dict[str, Any]:
    where = f"layer {node.name} ({node.kind})" if node.name or node.kind else f"node {number}"
    primitive = node.primitive
    return {
        "inputs": list(node.inputs),
        "shape": list(node.shape),
        "primitive": None
        if primitive is None
        else _entry("primitive", primitive, where, f"{number}", tensors),
        "axis": node.axis,
        "name": node.name,
        "kind": node.kind,
        "assumptions": list(node.assumptions),
    }


def _described(group: str, described: Any, words: str) -> Description:
    tensors: dict[str, Tensor] = {}
    return _entry(group, described, words, group, tensors), tensors


def _entry(group: str, described: Any, where: str, place: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the JSON object that describes a value: its type, and the arguments of its constructor."""
    kind = type(described)
    if not kind.__module__.startswith("certus.kernel.") or kind.__name__ not in KINDS[group]:
        raise UnsupportedError(
            f"A certificate about {where} cannot be checked without the code of {kind.__name__}, which "
            f"is not a {group} of the kernel: it is not stored."
        )
    fields = [field.split(":")[0] for field in KINDS[group][kind.__name__][1].split()]
    values = {name: _argument(described, name) for name in fields}
    if isinstance(described, Affine):
        size = described.bias_size if "bias" in fields else None
        values |= {
            "folds": described.folds,
            "bias_size": size,
            "norms": described.claim,
            "written": described.written,
        }
    entry = {name: _plain(value, where, f"{place}.{name}", tensors) for name, value in values.items()}
    return {"type": kind.__name__, **entry}


def _argument(described: Any, name: str) -> Any:
    """Return the argument that the constructor was called with."""
    if isinstance(described, Affine) and name in _FIRST:
        return described.weights[0]
    if isinstance(described, Affine) and name == "matrices":
        return described.weights
    return (
        described.in_shape if isinstance(described, Affine) and name == "shape" else getattr(described, name)
    )


def _plain(value: Any, where: str, place: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON; store its tensors under the name of their position."""
    match value:
        case Tensor():
            tensors[place] = value.detach().cpu().contiguous().clone()
            return place
        case Scalar():
            _check_scalar(value, where)
            return [value.name, *(_plain(setting, where, place, tensors) for setting in value.settings)]
        case Primitive():
            return _entry("primitive", value, where, place, tensors)
        case tuple() | list():
            return [_plain(part, where, f"{place}.{number}", tensors) for number, part in enumerate(value)]
        case float() if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return value


def _check_scalar(given: Scalar, where: str) -> None:
    """Raise ``UnsupportedError`` unless an activation is the kernel's own of that name."""
    try:
        own = scalar(given.name, *given.settings)
    except (Refused, TypeError):
        own = replace(given, value=torch.zeros_like)
    if not all(_same(value, vars(own)[name]) for name, value in vars(given).items()):
        raise UnsupportedError(
            f"A certificate about {where} cannot be checked without the code of the activation "
            f"{given.name!r}, which the kernel does not have: it is not stored."
        )


def _same(first: Any, second: Any) -> bool:
    """Whether values are equal, or functions of the same code with equal settings."""
    if first is second or not isinstance(first, FunctionType) or not isinstance(second, FunctionType):
        return bool(first == second)
    held = [[cell.cell_contents for cell in each.__closure__ or ()] for each in (first, second)]
    return first.__code__ is second.__code__ and all(map(_same, *held))


def _claims(operator: Affine) -> dict[str, Any]:
    """The claimed norm of an operator on moves, and those of its parts."""
    match operator:
        case Product():
            parts = operator.parts
        case Transposed():
            parts = (operator.original,)
        case _:
            parts = ()
    return {
        "norms": list(operator.claim),
        "written": operator.written,
        "parts": [_claims(part) for part in parts],
    }
