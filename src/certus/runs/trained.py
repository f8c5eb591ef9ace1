"""A complete run, opened for use: its network, its loss, its data and the geometry it was trained with."""

from __future__ import annotations

from dataclasses import dataclass

from certus.costs import Cost
from certus.data import DataSet
from certus.domains import Domain
from certus.errors import ArgumentError
from certus.losses import ModelLoss
from certus.runs.directory import RunDirectory
from certus.runs.execute import Settings, load_data, rebuild_model, settings_of
from certus.runs.files import RunError
from certus.runs.tags import from_tag
from certus.surrogate import WRM
from certus.training.calibration import careful


@dataclass(frozen=True)
class TrainedRun:
    """What a run directory holds, rebuilt.

    Attributes:
        loss: the trained network, in eval mode, with the criterion it was trained with.
        cost, domain: c and Z of its training.
        gamma, rho_hat: the penalty that a WRM run ended with, and how far it moves its training data; None
            for other methods.
    """

    run: RunDirectory
    settings: Settings
    data: DataSet
    loss: ModelLoss
    cost: Cost
    domain: Domain
    gamma: float | None
    rho_hat: float | None

    @property
    def wrm(self) -> WRM:
        """The WRM that the run was trained with, at its final γ, solved with care."""
        if self.gamma is None:
            raise ArgumentError(
                f"`{self.run.path}` must be a run of wrm; it was trained by {self.settings.method}."
            )
        return WRM(self.gamma, cost=self.cost, domain=self.domain, maximizer=careful())


def open_trained(run: RunDirectory, *, model: str | None = None) -> TrainedRun:
    """A complete run, checked against its data.

    Args:
        model: the run's own ``FILE.py:FACTORY``, if it has one: it is executed.
    """
    result, settings, about = run.result, settings_of(run), run.settings
    if result is None:
        raise RunError(f"{run.path} is incomplete; `certus resume {run.path}` goes on with it.")
    data = load_data(settings)
    if data.sha256 != about["data_sha256"]:
        raise RunError(f"{run.path} was made with other data: {settings.data} now has another sha256.")
    network = rebuild_model(run, settings, data, model)
    network.load_state_dict(run.weights())
    level = result["level"]
    return TrainedRun(
        run,
        settings,
        data,
        ModelLoss(network.eval(), from_tag(about["criterion"])),
        from_tag(about["cost"]),
        from_tag(about["domain"]),
        None if level is None else float(level["gamma"]),
        None if level is None else float(level["rho_hat"]),
    )
