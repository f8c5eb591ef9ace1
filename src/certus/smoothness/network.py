"""A model as the bounds see it: steps between shapes, adjacent affine layers merged.

Only sequential composition and ``Residual`` are read, never a traced graph: what a ``forward`` does beyond
that has no rule, and is refused by the path of the module. A model is run once beside its steps, so that a
hook, or a ``forward`` of the user's own, that the rules know nothing of is found out.

Reading must not change what is read. A weight may be computed by a parametrization each time it is asked for,
and one such as ``spectral_norm`` moves on whenever that happens in train mode. So a model is read
``at_rest``: in eval mode throughout, each weight computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, CertusError, UnsupportedError, require
from certus.smoothness import activation_rules  # noqa: F401  (registers its rules)
from certus.smoothness.activation import Activation
from certus.smoothness.activation_claims import check_activation
from certus.smoothness.altered import is_altered
from certus.smoothness.layer_claims import (
    check_kind,
    check_layer_values,
    check_operator,
    check_reach,
    check_windows,
)
from certus.smoothness.merging import merge
from certus.smoothness.operators import Operator, Reshape
from certus.smoothness.rules import RULES, Branches, LayerRule
from certus.smoothness.stage import Shape, Stage
from certus.smoothness.steps import Step, run_steps
from certus.smoothness.sums import Sum
from certus.smoothness.windows import Windows

_OWN = dict(RULES)
"""The rules of certus itself: nobody else has had a chance to register one yet."""


def find_rule(module: nn.Module) -> LayerRule | None:
    """The rule of the module's class, or of the parent whose ``forward`` it uses unchanged."""
    kind = _kind(module)
    return None if kind is None else RULES[kind]


def has_own_rule(module: nn.Module) -> bool:
    """Whether the rule of a module is one that certus has for its class."""
    kind = _kind(module)
    return kind is not None and _OWN.get(kind) is RULES[kind]


def _kind(module: nn.Module) -> type[nn.Module] | None:
    for parent in type(module).__mro__:
        if parent in RULES and type(module).forward is parent.forward:
            return parent
    return None


def is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules in it, each as often as it is used: ``named_children`` would name a shared one once."""
    return [(name, child) for name, child in model._modules.items() if child is not None]


def leaves(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of a sequential model in order, with their paths."""
    if is_sequential(model):
        if is_altered(model):
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
        if known is None:
            raise UnsupportedError(
                f"Nothing is known about the layer {name} ({kind}), so nothing can be proven. Replace it, or "
                f"register a rule for it with @certus.smoothness.rule({kind}); "
                "certus.smoothness.validate(model) lists every such layer."
            )
        if is_altered(module):
            raise UnsupportedError(
                f"The layer {name} ({kind}) has forward hooks, or functions of its own, which no rule knows."
            )
        try:
            stage = known(module, shape)
        except UnsupportedError as reason:
            raise UnsupportedError(f"The layer {name} ({kind}) has {reason}.") from None
        step = _make_step(place, kind, stage, shape)
        if not has_own_rule(module):
            step = _tried(module, step, f"the rule of {kind} ({f'layer {place}' if place else name})")
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
            branches.append(merge_steps(steps))
        ends = [branch[-1].out_shape if branch else shape for branch in branches]
        if len(set(ends)) > 1:
            raise ArgumentError(f"The branches of {path} must end in one shape; got {ends}.")
        return Step(path, kind, Sum(branches), shape, ends[0])
    out_shape = stage.shape_behind(shape)
    if min(out_shape, default=1) < 1:
        raise ArgumentError(f"`input_shape` must be large enough for {path} ({kind}); got {shape} there.")
    return Step(path, kind, stage, shape, out_shape)


def _check_input_is_left(branch: nn.Module, steps: list[Step]) -> None:
    """Raise if a branch writes over the input that it shares with the others."""
    for (_, module), step in zip(leaves(branch), steps, strict=True):
        if isinstance(step.stage, Reshape):  # which hands on the same memory
            continue
        if getattr(module, "inplace", False):
            raise UnsupportedError(
                f"The layer {step.path} ({step.kind}) has inplace=True, and writes over the input that "
                "another branch reads; use inplace=False."
            )
        return


def _tried(module: nn.Module, step: Step, name: str) -> Step:
    """A step by a rule of the user's: refused where points refute it, and *assumed* by name otherwise."""
    where = name[0].upper() + name[1:]
    _try_stage(where, step)
    check_layer_values(where, module, step.stage.apply, step.in_shape)
    return replace(step, assumptions=(name,))


def _try_stage(where: str, step: Step) -> None:
    check_kind(where, step.stage)
    match step.stage:
        case Activation():
            check_activation(where, step.stage)
        case Operator():
            check_operator(where, step.stage)
        case Windows():
            check_windows(where, step.stage)
        case Sum(branches):
            for part in (part for branch in branches for part in branch):
                _try_stage(where, part)
        case _:
            check_reach(where, step.stage, step.in_shape)


def assumptions_of(steps: list[Step]) -> tuple[str, ...]:
    """All rules of the user's in some steps, by name."""
    found: list[str] = []
    for step in steps:
        found += step.assumptions
        for branch in step.stage.branches if isinstance(step.stage, Sum) else []:
            found += assumptions_of(branch)
    return tuple(dict.fromkeys(found))


def merge_steps(steps: list[Step]) -> list[Step]:
    """Runs of affine layers made one step each; those that only reshape are not named."""
    merged: list[Step] = []
    run: list[Step] = []
    for step in [*steps, None]:
        if step is not None and isinstance(step.stage, Operator):
            run.append(step)
            continue
        if run:
            operator = merge([part.stage for part in run if isinstance(part.stage, Operator)])
            named = [part for part in run if not isinstance(part.stage, Reshape)] or run[-1:]
            path, kind = "+".join(part.path for part in named), "+".join(part.kind for part in named)
            shapes, assumed = (run[0].in_shape, run[-1].out_shape), assumptions_of(run)
            merged.append(Step(path, kind, operator, *shapes, assumptions=assumed))
            run = []
        if step is not None:
            merged.append(step)
    return merged


def whiten_steps(steps: list[Step], whitening: Operator, shape: Shape) -> list[Step]:
    """The steps of a network whose inputs are moved by x = x₀ + Su."""
    if not steps or not isinstance(steps[0].stage, Operator):
        steps = [Step("", "inputs", Reshape(shape, shape), shape, shape), *steps]
    first = steps[0].stage
    assert isinstance(first, Operator)
    return [replace(steps[0], whitened=merge([whitening, first])), *steps[1:]]


def infer_shape(model: nn.Module) -> Shape:
    """The input shape of a model that begins with a linear layer, perhaps behind flattening."""
    for _, module in leaves(model):
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        if not isinstance(module, nn.Flatten | nn.Identity | nn.Dropout):
            break
    raise ArgumentError("`input_shape` must be given for this model, such as (1, 28, 28); got None.")


def check_agreement(model: nn.Module, steps: list[Step], shape: Shape) -> None:
    """Raise unless the steps compute what the model, at rest, does at three random inputs, up to its
    precision."""
    parameter = next(model.parameters(), torch.zeros(()))
    inputs = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = model(inputs.clone().to(parameter))  # which it may overwrite
    expected = run_steps(steps, inputs)
    require(isinstance(outputs, Tensor), "model", "return a tensor", type(outputs))
    fits = outputs.shape == expected.shape
    precision = math.sqrt(torch.finfo(outputs.dtype).eps)
    size = float(expected.abs().max()) + 1
    close = (
        fits and float((outputs.double().cpu() - expected).abs().max()) <= 10 * precision * size < math.inf
    )
    if not close:  # nor where anything is NaN
        raise CertusError(
            "The model does not compute what its layers do one after another: something in it, such as a "
            "hook or a forward of its own, has no rule. Nothing can be proven about it."
        )
