"""Ascents whose model runs in bfloat16: what they reach, and what is left as it was."""

from __future__ import annotations

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import certus
from certus import WRM, ModelLoss
from certus.inner import half

INPUTS = torch.randn(64, 20, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(64) % 3


class Watched(nn.Linear):
    """A layer that records the types of its outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.types: list[torch.dtype] = []

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        self.types.append(outputs.dtype)
        return outputs


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Watched(20, 64), nn.Linear(64, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(nn.functional.elu(self.first(inputs)))
        return outputs


def network() -> Network:
    torch.manual_seed(0)
    return Network()


def test_the_points_are_as_good() -> None:
    """At the points of both, f in float32 differs by less than the rounding of a loss in bfloat16."""
    model = network()
    loss, found = ModelLoss(model), {}
    for precision in ("float32", "bfloat16"):
        wrm = WRM(0.5, precision=precision)
        moved = wrm(loss, INPUTS, LABELS)
        assert wrm.used_precision == precision
        assert moved.dtype == torch.float32
        found[precision] = loss(moved, LABELS).detach() - 0.5 * certus.SquaredL2()(moved, INPUTS)
    difference = found["float32"] - found["bfloat16"]
    assert not torch.equal(found["float32"], found["bfloat16"])
    assert float(difference.abs().mean()) < 2**-8 * float(1 + found["float32"].abs().mean())
    assert all(weights.requires_grad and weights.grad is None for weights in model.parameters())
    assert torch.bfloat16 in model.first.types


def test_auto_depends_on_the_device_and_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = ModelLoss(network()), ModelLoss(nn.Sequential(nn.Linear(20, 8000), nn.Linear(8000, 3)))
    for there in (False, True):
        monkeypatch.setattr(half, "has_bfloat16", lambda device, there=there: there)
        assert half.pays(wide, INPUTS) is there
        assert not half.pays(wide, INPUTS[:8])
        assert not half.pays(narrow, INPUTS)
        assert not half.pays(wide, INPUTS.double())
    wrm = WRM(2.0)
    assert wrm.solve(wide, INPUTS, LABELS).value.dtype == torch.float32
    assert wrm.used_precision == "float32"  # what is measured is measured in full
    wrm(wide, INPUTS, LABELS)
    assert wrm.used_precision == "bfloat16"


def test_autocast_of_the_caller_reaches_the_ascent() -> None:
    model = network()
    with torch.autocast("cpu", torch.bfloat16):
        WRM(2.0)(ModelLoss(model), INPUTS, LABELS)
    assert set(model.first.types) == {torch.bfloat16}


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
def test_the_precision_of_a_fabric_reaches_the_ascent(precision: str) -> None:
    model = network()
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)  # type: ignore[arg-type]
    wrm = WRM(2.0, maximizer=certus.inner.PaperAscent(3))
    run = certus.fit(model, (INPUTS, LABELS), method=wrm, epochs=1, fabric=fabric, progress=False)
    expected = "bfloat16" if precision == "bf16-mixed" else "float32"
    assert run.inner_precision == expected
    first = model.first.types[1:6]  # after the trial, four passes of the ascent and one of the step
    assert first == [getattr(torch, expected)] * 5


def test_what_cannot_run_in_bfloat16_is_refused() -> None:
    with pytest.raises(certus.errors.ArgumentError, match="`precision` must be one of auto"):
        WRM(1.0, precision="half")
    with pytest.raises(certus.errors.ArgumentError, match="unless the loss is a ModelLoss"):
        WRM(1.0, precision="bfloat16")(lambda z: z.sum(1), INPUTS)
    with pytest.raises(certus.errors.ArgumentError, match=r"`autocast` must be torch\.bfloat16"):
        ModelLoss(network(), autocast=torch.float64)
