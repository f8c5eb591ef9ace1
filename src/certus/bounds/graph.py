"""A graph of layers made steps: what stands in a row, what is added, and what is neither.

A node is a *cut* if every path from the input to the output leads through it. In an order in which each node
comes behind what it uses, those are the nodes that no edge jumps over. Between two neighbouring cuts there is
nothing (a step), branches that share no node and are added (a ``Sum``), or anything else (a ``Web``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from certus.bounds.composition import Step
from certus.bounds.merging import merge_steps
from certus.bounds.passes import Shape
from certus.bounds.web import Segment, Sum, Web


@dataclass(frozen=True, eq=False)
class Node:
    """A step behind one other node, or several joined.

    Attributes:
        inputs: numbers of the nodes that it uses; 0 is the input of the graph.
        step: None for a join, or for the input itself.
        axis: of one sample, along which a join concatenates; None if it adds.
    """

    inputs: tuple[int, ...]
    shape: Shape
    path: str = ""
    step: Step | None = None
    axis: int | None = None


def steps_of_graph(nodes: list[Node], output: int) -> list[Step]:
    """The steps from node 0 to ``output``; affine runs are merged inside of branches only."""
    return _series(nodes, 0, output)


def _series(nodes: list[Node], start: int, end: int) -> list[Step]:
    """The steps behind ``start`` up to ``end``, all of whose paths begin at ``start``."""
    steps: list[Step] = []
    inside = _between(nodes, start, end)
    for first, last in _neighbours(nodes, start, inside):
        node = nodes[last]
        if node.step is not None:
            assert node.inputs == (first,)
            steps.append(node.step)
        else:
            steps.append(_block(nodes, first, last))
    return steps


def _between(nodes: list[Node], start: int, end: int) -> list[int]:
    """What lies on a path from ``start`` to ``end``, in order, without ``start``."""
    wanted, waiting = {start}, [end]
    while waiting:
        index = waiting.pop()
        if index not in wanted:
            wanted.add(index)
            waiting += nodes[index].inputs
    return sorted(wanted - {start})


def _neighbours(nodes: list[Node], start: int, inside: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of neighbouring cuts: no edge leads from before the second to behind it."""
    first_use = {index: min(nodes[index].inputs) for index in inside}
    last = start
    for place, index in enumerate(inside):
        if all(first_use[later] >= index for later in inside[place + 1 :]):
            yield last, index
            last = index


def _block(nodes: list[Node], start: int, end: int) -> Step:
    """The join ``end`` with all that lies between it and ``start``."""
    join = nodes[end]
    parts = [_between(nodes, start, index) for index in join.inputs]
    apart = max(Counter(index for part in parts for index in part).values(), default=1) == 1
    in_shape = nodes[start].shape
    if apart and join.axis is None:
        stage: Sum | Web = Sum([merge_steps(_series(nodes, start, index)) for index in join.inputs])
    elif apart:
        stage = Web(_side_by_side(nodes, start, end))
    else:
        stage = Web(_segments(nodes, start, end))
    return Step(join.path, type(stage).__name__, stage, in_shape, join.shape)


def _side_by_side(nodes: list[Node], start: int, end: int) -> list[Segment]:
    """Branches of a concatenation that share nothing: one segment each."""
    segments: list[Segment] = []
    places = []
    for index in nodes[end].inputs:
        if index != start:
            steps = merge_steps(_series(nodes, start, index))
            segments.append(Segment(steps, (0,), None, nodes[start].shape))
        places.append(0 if index == start else len(segments))
    return [*segments, _joint(nodes, end, tuple(places))]


def _segments(nodes: list[Node], start: int, end: int) -> list[Segment]:
    """All nodes between: a step joins the segment of what it uses, if nothing else uses that."""
    inside = _between(nodes, start, end)
    uses = Counter(used for index in inside for used in nodes[index].inputs)
    segments: list[Segment] = []
    places = {start: 0}
    for index in inside:
        node = nodes[index]
        if node.step is None:
            segments.append(_joint(nodes, index, tuple(places[used] for used in node.inputs)))
        else:
            (used,) = node.inputs
            if used != start and uses[used] == 1:
                last = segments[places[used] - 1]
                segments[places[used] - 1] = replace(last, steps=[*last.steps, node.step])
                places[index] = places[used]
                continue
            segments.append(Segment([node.step], (places[used],), None, nodes[used].shape))
        places[index] = len(segments)
    return [replace(part, steps=merge_steps(part.steps)) for part in segments]


def _joint(nodes: list[Node], index: int, places: tuple[int, ...]) -> Segment:
    node = nodes[index]
    sizes = () if node.axis is None else tuple(nodes[used].shape[node.axis] for used in node.inputs)
    return Segment([], places, node.axis, node.shape, sizes)
