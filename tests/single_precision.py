"""A device without float64, as MPS is, on any machine.

A ``DeviceTensor`` claims to be on the device ``meta``, whose tensors are otherwise empty, and holds its
numbers in an ordinary tensor. ``SinglePrecisionDevice`` computes with these, and refuses what such a device
refuses: float64 on the device, and operations between it and the CPU. Numbers leave it by a copy,
``tensor.cpu()``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
_BETWEEN = ("_to_copy", "copy_", "index", "index_put_")  # may have tensors of both kinds


class DeviceTensor(Tensor):
    """A tensor on the device; ``held`` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        made: DeviceTensor = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stubs leave out the function
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class SinglePrecisionDevice(TorchDispatchMode):
    """While it is active, ``.to(DEVICE)`` and ``device=DEVICE`` lead to the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = ExitStack()

    def __enter__(self) -> Any:
        self._calls.enter_context(_Calls())
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)  # type: ignore[no-untyped-call]
        self._calls.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """The calls that PyTorch would answer for ``meta`` before it asks a ``TorchDispatchMode``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == DEVICE:
            return func(*args, **{**kwargs, "device": None}).to(DEVICE)
        if func is Tensor.new_tensor and isinstance(args[0], DeviceTensor):
            return args[0].held.new_tensor(*args[1:], **kwargs).to(DEVICE)
        if func is Tensor.tolist and isinstance(args[0], DeviceTensor):
            return args[0].held.tolist()
        return func(*args, **kwargs)


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    there = [isinstance(value, DeviceTensor) for value in tensors]
    wanted = kwargs.get("device")
    goes = any(there) if wanted is None else torch.device(wanted) == DEVICE
    empty = [value for value in tensors if value.device == DEVICE and not isinstance(value, DeviceTensor)]
    assert not empty, f"{name} was given a meta tensor that holds no numbers."
    others = [value for value in tensors if not isinstance(value, DeviceTensor) and value.dim() > 0]
    if any(there) and others and name not in _BETWEEN:
        raise RuntimeError(f"{name}: tensors on the device and on the CPU must not be mixed.")
    if name == "_to_copy" and any(there) and kwargs.get("dtype") == torch.float64:
        raise TypeError("The device has no float64: move, then widen.")
    inside = {**kwargs, "device": torch.device("cpu")} if wanted is not None else kwargs
    results = func(*tree_map(_held, args), **tree_map(_held, inside))
    if "out" in kwargs:
        return kwargs["out"]
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    return tree_map(_placed, results) if goes else results


def _held(value: Any) -> Any:
    return value.held if isinstance(value, DeviceTensor) else value


def _placed(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dtype in (torch.float64, torch.complex128):
        raise TypeError("The device has no float64.")
    return DeviceTensor(value)


def on_device(model: nn.Module) -> nn.Module:
    """Move the weights, in place."""
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(DeviceTensor(weight.detach().clone())))
        for name, values in list(module.named_buffers(recurse=False)):
            setattr(module, name, DeviceTensor(values.clone()))
    return model
