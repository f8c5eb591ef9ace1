"""The callback in a real ``Trainer``: models are more robust, γ is kept in checkpoints, no trace is left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from certus import WRM, ModelLoss
from certus.errors import ArgumentError, UnsupportedError
from certus.training.lightning_callback import RobustTraining
from tests.training.attacked import DATA, attacked


class Net(LightningModule):
    """As people write one; it keeps what its step was given."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 10))
        self.given: list[Any] = []

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.body(inputs)
        return scores

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.given.append(batch)
        return functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.8)


def trained(
    *callbacks: Callback, epochs: int = 1, steps: int = -1, parts: int = 1, resume: Path | None = None
) -> Trainer:
    """A trainer that has trained a fresh network from one seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, train = Net(), TensorDataset(DATA.train.inputs, DATA.train.targets)
        loader = DataLoader(
            train, batch_size=64 // parts, generator=torch.Generator().manual_seed(0), shuffle=True
        )
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            max_steps=steps,
            accumulate_grad_batches=parts,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(callbacks),
        )
        trainer.fit(net, loader, ckpt_path=resume)
    return trainer


def given(trainer: Trainer) -> list[Any]:
    """The batches that the steps were given."""
    assert isinstance(trainer.lightning_module, Net)
    return trainer.lightning_module.given


def test_the_model_is_more_robust() -> None:
    plain = trained(epochs=4)
    robust = trained(RobustTraining(WRM(gamma=1.0, domain=DATA.domain)), epochs=4)
    assert attacked(robust.lightning_module) < 0.75 * attacked(plain.lightning_module)
    for name in ("phi", "rho_running", "gradients"):
        assert robust.callback_metrics[name] > 0


def test_the_step_is_given_what_wrm_makes() -> None:
    """The first batch, moved by hand at the first weights."""
    plain, robust = trained(steps=1), trained(RobustTraining(WRM(gamma=1.0)), steps=1)
    (inputs, targets), (moved, same) = given(plain)[0], given(robust)[0]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        by_hand = WRM(gamma=1.0)(ModelLoss(Net()), inputs, targets)
    torch.testing.assert_close(moved, by_hand)
    assert float((moved - inputs).abs().max()) > 0.01
    assert torch.equal(same, targets)
    assert "training_step" not in vars(robust.lightning_module)


def test_accumulated_batches_are_the_large_one() -> None:
    whole, accumulated = (trained(RobustTraining(WRM(gamma=1.0)), steps=3, parts=parts) for parts in (1, 4))
    assert len(given(accumulated)) == 12
    for one, other in zip(
        whole.lightning_module.parameters(), accumulated.lightning_module.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_gamma_follows_rho_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first = RobustTraining(WRM(rho=0.05))
    trained(first, epochs=1).save_checkpoint(tmp_path / "half.ckpt")
    again = RobustTraining(WRM(rho=0.05))
    trained(again, epochs=1, resume=tmp_path / "half.ckpt")  # nothing is left to do
    assert again.state_dict() == first.state_dict() != {"gamma": None}


def test_batches_that_are_no_pairs_are_refused() -> None:
    callback, net = RobustTraining(WRM(gamma=1.0)), Net()
    callback.on_train_start(None, net)
    with pytest.raises(ArgumentError, match=r"`batch` must be a sequence \(inputs, targets, …\); got"):
        net.training_step({"image": 0}, 0)


def test_without_lightning_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, RobustTraining.__module__)
    with pytest.raises(UnsupportedError, match=r"pip install 'certus\[lightning\]'"):
        import certus.training.lightning_callback  # noqa: F401
