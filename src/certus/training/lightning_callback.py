"""Algorithm 1 inside Lightning's loop: ``training_step`` receives the moved inputs.

for each batch:   ẑ ← perturb(z),   training_step(ẑ)                                     [alg:thealg]
"""

from __future__ import annotations

from typing import Any

from certus.errors import ArgumentError, UnsupportedError
from certus.inner.methods import MethodLike, as_method
from certus.losses import Criterion, ModelLoss, as_criterion

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError:
        raise UnsupportedError("RobustTraining needs Lightning: pip install 'certus[lightning]'.") from None


class RobustTraining(Callback):  # type: ignore[misc, unused-ignore]  # Any, where one of the packages is missing
    """Callback that moves each batch, (inputs, targets, …), by a method before ``training_step``.

    Args:
        method: ``certus.WRM(gamma=2.0)``, ``WRM(rho=0.1)``, whose γ is kept in checkpoints, or another.
        criterion: what ``training_step`` minimises, per sample, of the outputs of the module's ``forward``;
            cross-entropy for labels and squared error for numbers, when None.
    """

    def __init__(self, method: MethodLike, criterion: Criterion | None = None) -> None:
        self.method, self.criterion = as_method(method), as_criterion(criterion)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        step, loss = pl_module.training_step, ModelLoss(pl_module, self.criterion)

        def training_step(batch: Any, *others: Any, **named: Any) -> Any:
            if not isinstance(batch, tuple | list) or len(batch) < 2:
                raise ArgumentError(f"`batch` must be a sequence (inputs, targets, …); got {type(batch)}.")
            perturbed = self.method.perturb(loss, batch[0], batch[1])
            means = {name: float(values.cpu().double().mean()) for name, values in perturbed.measured.items()}
            pl_module.log_dict(means, on_step=False, on_epoch=True, batch_size=len(batch[0]))
            return step((perturbed.inputs, perturbed.targets, *batch[2:]), *others, **named)

        pl_module.training_step = training_step

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        vars(pl_module).pop("training_step", None)  # the class's own is back

    def state_dict(self) -> dict[str, Any]:
        return self.method.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.method.load_state_dict(state_dict)
