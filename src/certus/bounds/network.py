"""Reading a model: layers as steps between shapes, with adjacent affine layers merged.

``Sequential`` and ``Residual`` are read directly. A module without a rule is exported to a graph
(``export``), which is translated function by function (``graph_reader``). Anything without a rule is refused,
by its path and the user's line. Finally the outputs of the model are compared with those of its steps
(``equivalence``), which reveals whatever the rules do not describe.

Reading must not change the model. A weight may be computed by a parametrization on every access, and one such
as ``spectral_norm`` changes its state when that happens in train mode. So a model is read in ``eval_mode``,
with each weight computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from certus._eval_mode import eval_mode
from certus.bounds.equivalence import check_equivalence
from certus.bounds.export import foreign_tensors, is_modified
from certus.bounds.graph import Sum
from certus.bounds.graph_reader import read_graph
from certus.bounds.layer_rules import (
    Branches,
    children,
    find_rule,
    has_builtin_rule,
    is_graph_leaf,
    is_sequential,
    validated_step,
)
from certus.bounds.operators import Operator, Reshape, merge, merge_affine_steps
from certus.bounds.passes import Shape, Stage, Step
from certus.errors import ArgumentError, UnreadableModelError, UnsupportedError
from certus.layers import Residual


def read_network(model: nn.Module, shape: Shape) -> list[Step]:
    """Read a model for inputs of one shape; return its merged steps, compared with the model itself.

    Raises ``UnreadableModelError`` for a model that cannot be read.
    """
    try:
        with eval_mode(model):
            _refuse_foreign_tensors(model)
            steps = merge_affine_steps(read_layers(model, shape))
            check_equivalence(model, steps, shape)
    except UnsupportedError as reason:
        raise UnreadableModelError(str(reason)) from reason
    return steps


def _refuse_foreign_tensors(model: nn.Module) -> None:
    for path, module in model.named_modules():
        for name, kind in foreign_tensors(module).items():
            raise UnsupportedError(
                f"Parameters and buffers must be plain torch tensors with values; "
                f"{f'{path}.{name}' if path else name} is a {kind}."
            )


def leaves(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of a sequential model in order, with their paths."""
    if is_sequential(model):
        if is_modified(model):
            name = path or "the model itself"
            raise UnsupportedError(
                f"The container {name} has hooks or replaced methods, which have no rule. Remove them."
            )
        for name, child in children(model):
            yield from leaves(child, f"{path}.{name}" if path else name)
    else:
        yield path, model


def read_layers(model: nn.Module, shape: Shape, path: str = "") -> list[Step]:
    """The steps of a model for inputs of one shape, not yet merged."""
    steps: list[Step] = []
    for place, module in leaves(model, path):
        name, kind = place or "the model itself", type(module).__name__
        layer_rule = find_rule(module)
        if layer_rule is None or _has_unknown_branch(module):
            read = read_graph(module, shape, place, is_graph_leaf, read_layers)
            steps += read
            shape = read[-1].out_shape if read else shape
            continue
        if is_modified(module):
            raise UnsupportedError(
                f"The layer {name} ({kind}) has forward hooks or replaced methods, which have no rule. "
                "Remove them."
            )
        try:
            stage = layer_rule(module, shape)
        except UnsupportedError as reason:
            raise UnsupportedError(f"The layer {name} ({kind}) has {reason}.") from None
        step = _make_step(place, kind, stage, shape)
        if not has_builtin_rule(module):
            step = validated_step(module, step, f"the rule of {kind} ({f'layer {place}' if place else name})")
        steps.append(step)
        shape = step.out_shape
    return steps


def _make_step(path: str, kind: str, stage: Stage | Branches, shape: Shape) -> Step:
    if isinstance(stage, Branches):
        prefix = f"{path}." if path else ""
        branches = []
        for name, module in stage.modules.items():
            steps = read_layers(module, shape, prefix + name)
            _check_input_is_left(module, steps)
            branches.append(merge_affine_steps(steps))
        ends = [branch[-1].out_shape if branch else shape for branch in branches]
        if len(set(ends)) > 1:
            raise ArgumentError(f"The branches of {path} must have outputs of the same shape; got {ends}.")
        return Step(path, kind, Sum(branches), shape, ends[0])
    out_shape = stage.output_shape(shape)
    if min(out_shape, default=1) < 1:
        raise ArgumentError(f"`input_shape` must be large enough for {path} ({kind}); got {shape} there.")
    return Step(path, kind, stage, shape, out_shape)


def _has_unknown_branch(module: nn.Module) -> bool:
    """Whether a ``Residual`` contains modules without a rule, and must be exported to a graph."""
    return isinstance(module, Residual) and any(
        find_rule(each) is None and not is_sequential(each) for each in module.modules()
    )


def _check_input_is_left(branch: nn.Module, steps: list[Step]) -> None:
    """Raise if a branch overwrites the input that it shares with the other branches."""
    for (path, module), step in zip(leaves(branch), steps, strict=False):
        if find_rule(module) is None:
            raise UnsupportedError(
                f"The layer {path} ({type(module).__name__}) has no rule and may overwrite the input that it "
                "shares with another branch; write the sum in a forward instead."
            )
        if isinstance(step.stage, Reshape):  # which shares memory with its input
            continue
        if getattr(module, "inplace", False):
            raise UnsupportedError(
                f"The layer {step.path} ({step.kind}) has inplace=True and overwrites the input that it "
                "shares with another branch; use inplace=False."
            )
        return


def whiten_steps(steps: list[Step], whitening: Operator, shape: Shape) -> list[Step]:
    """The steps of a network whose inputs move by x = x₀ + Su."""
    if not steps or not isinstance(steps[0].stage, Operator):
        steps = [Step("", "inputs", Reshape(shape, shape), shape, shape), *steps]
    first = steps[0].stage
    assert isinstance(first, Operator)
    return [replace(steps[0], whitened=merge([whitening, first])), *steps[1:]]


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
