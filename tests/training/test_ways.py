"""Training as people do it: mixed precision, accumulation, torch.compile, channels-last, batch normalisation.

Each way in a loop of the user's own and in ``fit``. The table in docs/training.md lists these tests.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import certus
from certus import WRM, ModelLoss
from certus.losses import AnyLoss
from tests.training.attacked import DATA, attacked

INPUTS, TARGETS = DATA.train.inputs[:64], DATA.train.targets[:64]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 10))


def images() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ELU(), nn.Conv2d(4, 8, 3), nn.ELU())
    return net.extend([nn.Flatten(), nn.Linear(8, 10)])


def own_loop(net: nn.Module, wrm: WRM | None, *, autocast: bool = False, epochs: int = 4) -> nn.Module:
    """As in the README: three lines more than without."""
    loss, optimizer = ModelLoss(net), torch.optim.Adam(net.parameters(), lr=0.01)
    order = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for batch in torch.randperm(len(DATA.train), generator=order).split(64):
            inputs, targets = DATA.train.inputs[batch], DATA.train.targets[batch]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                moved = inputs if wrm is None else wrm(loss, inputs, targets)
                mean = loss(moved, targets).mean()
            mean.backward()
            optimizer.step()
            optimizer.zero_grad()
    return net


def outputs_of(layer: nn.Module) -> set[torch.dtype]:
    """Will hold the precisions in which the layer answers."""
    seen: set[torch.dtype] = set()
    layer.register_forward_hook(lambda _, __, output: seen.add(output.dtype))
    return seen


def test_autocast_in_an_own_loop_trains_robustly() -> None:
    """Ascent and step both in bfloat16; weights and moved inputs stay in single precision."""
    robust, plain = dense(), dense()
    seen = outputs_of(robust[1])  # type: ignore[index]
    own_loop(robust, WRM(gamma=1.0), autocast=True)
    own_loop(plain, None, autocast=True)
    assert seen == {torch.bfloat16}
    assert {value.dtype for value in robust.parameters()} == {torch.float32}
    assert attacked(robust) < 0.75 * attacked(plain)


def test_autocast_in_fit_trains_robustly() -> None:
    """``fit`` ascends in the model's own precision, and takes the step in bfloat16."""
    robust, plain = dense(), dense()
    seen = outputs_of(robust[1])  # type: ignore[index]
    for net, method in ((robust, WRM(gamma=1.0)), (plain, None)):
        fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        certus.fit(net, DATA.train, method=method, epochs=4, batch_size=64, optimizer=adam, fabric=fabric)
    assert seen == {torch.bfloat16, torch.float32}
    assert attacked(robust) < 0.75 * attacked(plain)


def test_certificates_are_in_double_precision_inside_autocast() -> None:
    def bounds() -> tuple[float, float]:
        found = certus.certify(net, (INPUTS[:6], TARGETS[:6]), rho=0.01, local_radii=1, gamma_rounds=0)
        bracket = found.bracket(0.01)
        return bracket.loss_low, bracket.loss_high

    net = dense()
    outside = bounds()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bounds() == outside


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    """Every sample has its own inner problem, so that the parts of a batch do not feel each other."""
    net, inputs = dense().double(), INPUTS.double()
    loss, wrm, found = ModelLoss(net), WRM(gamma=1.0), []
    for parts in (1, 4):
        for some, targets in zip(inputs.chunk(parts), TARGETS.chunk(parts), strict=True):
            (loss(wrm(loss, some, targets), targets).mean() / parts).backward()
        found.append([value.grad for value in net.parameters()])
        net.zero_grad()
    for whole, accumulated in zip(*found, strict=True):
        torch.testing.assert_close(accumulated, whole, rtol=1e-9, atol=1e-12)


# Compilation takes 20 seconds.
@pytest.mark.soak
# The compiler's own modules use what torch has given up, and hide a warning of theirs by a filter.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_compiled_models_move_and_train_as_they_are() -> None:
    torch.compiler.reset()
    with torch._inductor.config.patch(compile_threads=1):  # no processes that outlive the test
        eager, compiled = dense(), torch.compile(dense())
        assert isinstance(compiled, nn.Module)
        moved = WRM(gamma=1.0)(ModelLoss(compiled), INPUTS, TARGETS)
        torch.testing.assert_close(moved, WRM(gamma=1.0)(ModelLoss(eager), INPUTS, TARGETS))
        for net in (compiled, eager):
            certus.fit(net, (INPUTS, TARGETS), method=WRM(gamma=1.0), epochs=1, batch_size=32)
    for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_channels_last_is_the_same_as_contiguous() -> None:
    last, usual = images(), images()
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # which torch's stubs lack
    wide = INPUTS.contiguous(memory_format=torch.channels_last)
    moved = WRM(gamma=1.0)(ModelLoss(last), wide, TARGETS)
    torch.testing.assert_close(moved, WRM(gamma=1.0)(ModelLoss(usual), INPUTS, TARGETS))
    certus.fit(last, (wide, TARGETS), method=WRM(gamma=1.0), epochs=2, batch_size=32)
    certus.fit(usual, (INPUTS, TARGETS), method=WRM(gamma=1.0), epochs=2, batch_size=32)
    for one, other in zip(last.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("way", ["own loop", "fit"])
def test_batch_normalisation_counts_the_moved_batch_once(way: str) -> None:
    """Not the points that the ascent passed: the statistics are a tenth of those of T_γ, by definition."""
    net, seen = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)), []
    wrm = WRM(gamma=1.0)

    def watched(loss: AnyLoss, inputs: Tensor, targets: Tensor | None) -> Tensor:
        seen.append(wrm(loss, inputs, targets))
        return seen[-1]

    if way == "fit":
        certus.fit(net, (INPUTS, TARGETS), method=watched, epochs=1, batch_size=64)
    else:
        loss = ModelLoss(net)
        loss(watched(loss, INPUTS, TARGETS), TARGETS).mean().backward()
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.num_batches_tracked is not None
    assert (int(norm.num_batches_tracked), len(seen)) == (1, 1)
    torch.testing.assert_close(norm.running_mean, 0.1 * seen[0].flatten(1).mean(0))
    assert float((seen[0] - INPUTS).abs().max()) > 0.01
