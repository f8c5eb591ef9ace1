"""Reading a model: a flat graph of primitives, with adjacent affine layers merged.

``Sequential`` and ``Residual`` are read directly; a module without a rule is exported to a graph, which is
translated call by call. Anything else is refused, by its path and the user's line. Finally the outputs of the
model are compared with those of the graph, which reveals whatever the rules do not describe.

Reading must not change the model. A weight may be computed by a parametrization on every access, and one such
as ``spectral_norm`` changes its state when that happens in train mode. So a model is read in ``eval_mode``,
with each weight computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus.bounds.equivalence import check_equivalence
from certus.bounds.export import foreign_tensors, is_modified
from certus.bounds.graph_reader import GraphReader
from certus.bounds.layer_rules import (
    Branches,
    LogSoftmax,
    check_user_rule,
    children,
    find_rule,
    has_builtin_rule,
    is_sequential,
)
from certus.bounds.merging import merge_affine_nodes
from certus.errors import ArgumentError, ClaimError, UnreadableModelError, UnsupportedError
from certus.kernel.graph import Graph, Node
from certus.kernel.operators import Reshape
from certus.kernel.passes import Primitive, Refused, Shape
from certus.layers import Residual


@dataclass(frozen=True, eq=False)
class Network:
    """A model in the form of a graph.

    Attributes:
        normalized: whether the model ends in a log-softmax, which the graph omits: classification losses
            depend on differences of outputs only.
    """

    graph: Graph
    normalized: bool

    def apply(self, points: Tensor) -> Tensor:
        """The outputs of the model at (batch, *shape) points."""
        outputs = self.graph.apply(points)
        return torch.log_softmax(outputs, 1) if self.normalized else outputs


def read_network(model: nn.Module, shape: Shape) -> Network:
    """Read a model for inputs of one shape, and compare the graph with the model itself.

    Raises ``UnreadableModelError`` for a model that cannot be read.
    """
    try:
        with eval_mode(model):
            for path, module in model.named_modules():
                for name, kind in foreign_tensors(module).items():
                    raise UnsupportedError(
                        f"Parameters and buffers must be plain torch tensors with values; "
                        f"{f'{path}.{name}' if path else name} is a {kind}."
                    )
            nodes = read_nodes(model, shape)
            normalized = isinstance(nodes[-1].primitive, LogSoftmax)
            graph = Graph(tuple(merge_affine_nodes(nodes[:-1] if normalized else nodes)))
            network = Network(graph, normalized)
            check_equivalence(model, network.apply, shape)
    except UnsupportedError as reason:
        raise UnreadableModelError(str(reason)) from reason
    return network


def read_nodes(model: nn.Module, shape: Shape) -> list[Node]:
    """The nodes of a model for inputs of one shape, not yet merged; the last one is the output."""
    nodes = [Node((), shape)]
    output = read_layers(model, nodes, 0)
    wanted = {0, output}
    for index in range(output, 0, -1):
        if index in wanted:
            wanted.update(nodes[index].inputs)
    place = {index: number for number, index in enumerate(sorted(wanted))}
    return [_renumbered(nodes[index], place) for index in place]


def _renumbered(node: Node, place: dict[int, int]) -> Node:
    return replace(node, inputs=tuple(place[index] for index in node.inputs))


def leaves(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of a sequential model in order, with their paths."""
    if is_sequential(model):
        if is_modified(model):
            raise UnsupportedError(
                f"The container {path or 'the model itself'} has hooks or replaced methods, which have no "
                "rule. Remove them."
            )
        for name, child in children(model):
            yield from leaves(child, f"{path}.{name}" if path else name)
    else:
        yield path, model


def read_layers(model: nn.Module, nodes: list[Node], start: int, path: str = "") -> int:
    """Append the nodes of a model that is applied to node ``start``; return the number of its output."""
    last = start
    for place, module in leaves(model, path):
        kind, shape = type(module).__name__, nodes[last].shape
        layer_rule, where = find_rule(module), f"layer {place or 'the model itself'} ({kind})"
        if layer_rule is None or _has_unknown_branch(module):
            last = GraphReader(module, nodes, last, place, read_layers).run()
            continue
        if is_modified(module):
            raise UnsupportedError(
                f"The {where} has forward hooks or replaced methods, which have no rule. Remove them."
            )
        try:
            primitive = layer_rule(module, shape)
        except (UnsupportedError, Refused) as reason:
            raise UnsupportedError(f"The {where} has {reason}.") from None
        begin = len(nodes)
        if isinstance(primitive, Branches):
            last = _add_branches(primitive, nodes, last, place, kind)
        else:
            if not isinstance(primitive, Primitive) or primitive.in_shape != shape:
                got = f"{type(primitive).__name__} of {getattr(primitive, 'in_shape', 'no shape')}"
                raise ClaimError(
                    f"The rule of the {where} must return a primitive for inputs of shape {shape}, or "
                    f"Branches; got {got}."
                )
            if min(primitive.out_shape, default=1) < 1:
                raise ArgumentError(
                    f"`input_shape` must be large enough for {place} ({kind}); got {shape} there."
                )
            nodes.append(Node((last,), primitive.out_shape, primitive, name=place, kind=kind))
            last = len(nodes) - 1
        if not has_builtin_rule(module):
            rule = f"the rule of {kind} ({f'layer {place}' if place else 'the model itself'})"
            check_user_rule(rule, module, _apart(nodes, start=nodes[begin].inputs[0], begin=begin))
            nodes[begin:] = [replace(node, assumptions=(*node.assumptions, rule)) for node in nodes[begin:]]
    return last


def _apart(nodes: list[Node], *, start: int, begin: int) -> Graph:
    """The nodes from ``begin`` on as a graph of its own, whose input is node ``start``."""
    place = {start: 0} | {index: index - begin + 1 for index in range(begin, len(nodes))}
    inner = [_renumbered(node, place) for node in nodes[begin:]]
    return Graph((Node((), nodes[start].shape), *inner))


def _add_branches(branches: Branches, nodes: list[Node], start: int, path: str, kind: str) -> int:
    """Append the nodes of modules that are applied to one node, and their sum."""
    prefix = f"{path}." if path else ""
    ends = []
    for name, module in branches.modules.items():
        begin = len(nodes)
        ends.append(read_layers(module, nodes, start, prefix + name))
        _check_input_is_left(module, nodes[begin:])
    shapes = [nodes[end].shape for end in ends]
    if len(set(shapes)) > 1:
        raise ArgumentError(f"The branches of {path} must have outputs of the same shape; got {shapes}.")
    nodes.append(Node(tuple(ends), shapes[0], name=path, kind=kind))
    return len(nodes) - 1


def _has_unknown_branch(module: nn.Module) -> bool:
    """Whether a ``Residual`` contains modules without a rule, and must be exported to a graph."""
    return isinstance(module, Residual) and any(
        find_rule(each) is None and not is_sequential(each) for each in module.modules()
    )


def _check_input_is_left(branch: nn.Module, nodes: list[Node]) -> None:
    """Raise if a branch overwrites the input that it shares with the other branches."""
    for (path, module), node in zip(leaves(branch), nodes, strict=False):
        if find_rule(module) is None:
            raise UnsupportedError(
                f"The layer {path} ({type(module).__name__}) has no rule and may overwrite the input that it "
                "shares with another branch; write the sum in a forward instead."
            )
        if isinstance(node.primitive, Reshape):  # which shares memory with its input
            continue
        if getattr(module, "inplace", False):
            raise UnsupportedError(
                f"The layer {node.name} ({node.kind}) has inplace=True and overwrites the input that it "
                "shares with another branch; use inplace=False."
            )
        return


def infer_shape(model: nn.Module) -> Shape:
    """The input shape of a model that begins with a linear layer, possibly after flattening.

    In a model with its own forward, the first registered layer must be linear.
    """
    for module in (each for _, leaf in leaves(model) for each in leaf.modules()):
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        passing = isinstance(module, nn.Flatten | nn.Identity | nn.Dropout)
        if not passing and (find_rule(module) is not None or not list(module.children())):
            break
    raise ArgumentError(
        "`input_shape` must be given unless the model begins with a linear layer, such as (1, 28, 28)."
    )
