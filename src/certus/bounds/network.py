"""A model as the bounds see it: steps between shapes, adjacent affine layers merged.

Sequential composition and ``Residual`` are read as they are. Of a module that has no rule, and a ``forward``
of its own, the graph is taken (``tracing``) and read function by function (``graph_reader``). What has no
rule is refused, by its path and by the user's line. A model is run beside its steps (``agreement``), so that
whatever the rules know nothing of is found out.

Reading must not change what is read. A weight may be computed by a parametrization each time it is asked for,
and one such as ``spectral_norm`` moves on whenever that happens in train mode. So a model is read
``eval_mode``: in eval mode throughout, each weight computed once.
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
    """The steps of a model for inputs of one shape: read at rest, merged, and run beside it.

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
                f"The tensor {f'{path}.{name}' if path else name} is of the class {kind}, which may compute "
                "anything, or has no values yet: parameters and buffers must be plain tensors of torch."
            )


def leaves(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of a sequential model in order, with their paths."""
    if is_sequential(model):
        if is_modified(model):
            name = path or "the model itself"
            raise UnsupportedError(
                f"The container {name} has hooks or a call of its own, which no rule knows."
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
        known = find_rule(module)
        if known is None or _has_unknown_branch(module):
            read = read_graph(module, shape, place, is_graph_leaf, read_layers)
            steps += read
            shape = read[-1].out_shape if read else shape
            continue
        if is_modified(module):
            raise UnsupportedError(
                f"The layer {name} ({kind}) has forward hooks, or functions of its own, which no rule knows."
            )
        try:
            stage = known(module, shape)
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
            raise ArgumentError(f"The branches of {path} must end in one shape; got {ends}.")
        return Step(path, kind, Sum(branches), shape, ends[0])
    out_shape = stage.output_shape(shape)
    if min(out_shape, default=1) < 1:
        raise ArgumentError(f"`input_shape` must be large enough for {path} ({kind}); got {shape} there.")
    return Step(path, kind, stage, shape, out_shape)


def _has_unknown_branch(module: nn.Module) -> bool:
    """Whether a block of ours holds modules without a rule: then its graph says what becomes of its input."""
    return isinstance(module, Residual) and any(
        find_rule(each) is None and not is_sequential(each) for each in module.modules()
    )


def _check_input_is_left(branch: nn.Module, steps: list[Step]) -> None:
    """Raise if a branch writes over the input that it shares with the others."""
    for (path, module), step in zip(leaves(branch), steps, strict=False):
        if find_rule(module) is None:
            raise UnsupportedError(
                f"The layer {path} ({type(module).__name__}) has a forward of its own, which may write over "
                "the input that another branch reads; put the sum itself into a forward."
            )
        if isinstance(step.stage, Reshape):  # which hands on the same memory
            continue
        if getattr(module, "inplace", False):
            raise UnsupportedError(
                f"The layer {step.path} ({step.kind}) has inplace=True, and writes over the input that "
                "another branch reads; use inplace=False."
            )
        return


def whiten_steps(steps: list[Step], whitening: Operator, shape: Shape) -> list[Step]:
    """The steps of a network whose inputs are moved by x = x₀ + Su."""
    if not steps or not isinstance(steps[0].stage, Operator):
        steps = [Step("", "inputs", Reshape(shape, shape), shape, shape), *steps]
    first = steps[0].stage
    assert isinstance(first, Operator)
    return [replace(steps[0], whitened=merge([whitening, first])), *steps[1:]]


def infer_shape(model: nn.Module) -> Shape:
    """The input shape of a model that begins with a linear layer, perhaps behind flattening.

    Of a model with a forward of its own the first layer that it was given must be linear.
    """
    for module in (each for _, leaf in leaves(model) for each in leaf.modules()):
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        passing = isinstance(module, nn.Flatten | nn.Identity | nn.Dropout)
        if not passing and (find_rule(module) is not None or not list(module.children())):
            break
    raise ArgumentError("`input_shape` must be given for this model, such as (1, 28, 28); got None.")
