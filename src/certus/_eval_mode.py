"""Set models to eval mode for the time of a block.

In train mode the points of an attack would change batch statistics, and a parametrization such as
``spectral_norm`` updates its state whenever its weight is read in train mode. The flags are set directly,
because ``train()`` and ``eval()`` are often overridden, and a model may have modules in both modes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.utils import parametrize

_COMPILED = "torch._dynamo.eval_frame.OptimizedModule"  # of torch.compile, by name: importing it is slow
_DEPTH = 6  # how deep a model may hide in what a loss refers to


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set every module of the model to eval mode, parametrizations too, and compute each weight once."""
    with parametrize.cached(), loss_eval_mode(model):
        yield


@contextmanager
def loss_eval_mode(loss: object) -> Iterator[None]:
    """Set every model that a loss refers to to eval mode: its own, or those that a function names.

    >>> model = nn.Dropout(0.5)
    >>> with loss_eval_mode(lambda inputs: model(inputs).sum(1)):
    ...     model.training
    False
    >>> model.training
    True
    """
    modes = {module: module.training for model in models_in(loss) for module in model.modules()}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``, which computes
    the same function; a wrapper with hooks, its own ``forward`` or a subclass may not, and is returned as it
    is.

    >>> unwrapped(DataParallel(nn.ReLU()))
    ReLU()
    """
    inner: object = None
    if f"{type(model).__module__}.{type(model).__qualname__}" == _COMPILED:
        inner = model._modules["_orig_mod"]
    elif type(model) in (DataParallel, DistributedDataParallel) and "forward" not in vars(model):
        inner = model.module
    if not isinstance(inner, nn.Module) or model._forward_hooks or model._forward_pre_hooks:
        return model
    return unwrapped(inner)


def models_in(loss: object) -> list[nn.Module]:
    """The models that a callable refers to, in its attributes, closure, defaults or globals."""
    models: dict[int, nn.Module] = {}
    seen: set[int] = set()
    waiting = [(loss, 0)]
    while waiting:
        value, depth = waiting.pop()
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            models[id(value)] = value
        else:
            waiting += [(part, depth + 1) for part in _parts(value)]
    return list(models.values())


def _parts(value: object) -> Iterator[object]:
    """Values that a value refers to and that may contain a model."""
    match value:
        case str() | bytes() | int() | float() | Tensor() | types.ModuleType() | type():
            return
        case dict():
            yield from value.values()
        case list() | tuple() | set() | frozenset():
            yield from value
        case functools.partial():
            yield from (value.func, value.args, value.keywords)
        case types.MethodType():
            yield from (value.__self__, value.__func__)
        case types.FunctionType():
            yield from parts_of_function(value)
        case _:
            yield from getattr(value, "__dict__", {}).values()
            call = getattr(type(value), "__call__", None)  # noqa: B004  (its code, not whether there is one)
            if isinstance(call, types.FunctionType):
                yield call


def parts_of_function(function: types.FunctionType) -> Iterator[object]:
    """Values that a function refers to: in its closure, as defaults, or as globals in its code."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in names_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]


def names_in(code: types.CodeType) -> Iterator[str]:
    """Names that the code, or nested code, looks up: globals, attributes and methods."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
