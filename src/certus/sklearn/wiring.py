"""The network inside an estimator: made from sizes, a module or a factory, trained on scaled data.

A network made from sizes is trained on z = (x − mean)/spread, and in a regression towards (y − m)/s. After
training both scalings are folded into its first and last layer,

    W₁ ← W₁ diag(1/spread),  b₁ ← b₁ − W₁ mean         W_L ← s·W_L,  b_L ← s·b_L + m

so that what is kept, certified and saved is a plain network of the rows as they come.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, require
from certus.models import certified_mlp
from certus.models.registry import mlp


def is_sizes(network: Any) -> bool:
    """Whether a network is given by the widths of its hidden layers."""
    return isinstance(network, tuple | list)


def make_network(network: Any, inputs: int, outputs: int, *, certified: bool, seed: int) -> nn.Module:
    """A network in float64, with weights drawn from ``seed`` where they are not given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if is_sizes(network):
            widths = list(network)
            whole = all(isinstance(width, int | np.integer) and width >= 1 for width in widths)
            require(whole, "network", "have whole numbers of units, at least 1", network)
            sizes = [int(width) for width in widths]
            made: Any = (
                certified_mlp(inputs, sizes, outputs)
                if certified and sizes
                else mlp(inputs, sizes, outputs, "softplus")
            )
        elif isinstance(network, nn.Module):
            made = copy.deepcopy(network)
        else:
            made = _called(network, inputs, outputs)
    found: nn.Module = made.double()
    with torch.no_grad():
        try:
            shape = tuple(found.eval()(torch.zeros(2, inputs, dtype=torch.float64)).shape)
        except (RuntimeError, TypeError, ValueError) as reason:
            raise ArgumentError(
                f"`network` must take rows of {inputs} features; it fails: {reason}"
            ) from reason
    fits = shape == (2, outputs) or (outputs == 1 and shape == (2,))
    require(fits, "network", f"return outputs of shape (batch, {outputs})", f"shape {shape} for 2 rows")
    return found


def _called(factory: Any, inputs: int, outputs: int) -> nn.Module:
    rule = "be widths such as (32,), a torch.nn.Module, or a function of `inputs` and `outputs`"
    require(callable(factory), "network", rule, factory)
    known = {"inputs": inputs, "outputs": outputs}
    names = [name for name in inspect.signature(factory).parameters if name in known]
    made = factory(**{name: known[name] for name in names})
    if not isinstance(made, nn.Module):
        raise ArgumentError(f"`network` must make a torch.nn.Module; got {type(made)}.")
    return made


@torch.no_grad()
def fold_inputs(module: nn.Module, mean: Tensor, spread: Tensor) -> None:
    """Let the network take x instead of (x − mean)/spread, in place."""
    first = next(part for part in module.modules() if isinstance(part, nn.Linear))
    first.weight.div_(spread)
    first.bias.sub_(first.weight @ mean)


@torch.no_grad()
def fold_outputs(module: nn.Module, mean: float, spread: float) -> None:
    """Let the network return m + s·F instead of F, in place."""
    last = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
    last.weight.mul_(spread)
    last.bias.mul_(spread).add_(mean)
