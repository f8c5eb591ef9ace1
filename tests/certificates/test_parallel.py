"""Certificates on several processes: the numbers of one process, and workers that end or are interrupted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from certus import Certificate, certify
from certus.bounds.equivalence import OriginalModel
from certus.certificates import batching, engine, local_bounds
from certus.certificates.cache import ProposalCache
from certus.certificates.files import as_json
from certus.certificates.parallel import Mapper, Progress, Question, worker_count
from certus.certificates.problem import Problem
from certus.costs import LabelCost
from certus.domains import Box
from certus.errors import ArgumentError, WorkerError
from certus.kernel.evidence import Evidence
from certus.losses import SquaredError
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, network, samples

INPUTS, LABELS = samples(1, 18)
ASK: dict[str, Any] = {"rho": (0.05, 0.3), "gammas": (8.0, 1.0), "local_radii": 1, "attack_steps": 2}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a confidence": ((INPUTS, LABELS), {"confidence": 0.9, "epsilon": 0.1}),
    "labels and weights": (
        (INPUTS, LABELS),
        {"label_cost": LabelCost(0.05, 3), "class_weights": (1.0, 2.0, 0.5)},
    ),
    "predicted": ((INPUTS, None), {"domain": Box(-1, 1)}),
    "regression": ((INPUTS, INPUTS[:, 0]), {"criterion": SquaredError(), "clip": 3.0}),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of a few samples; the bounds around the first ones are kept, others computed again."""
    monkeypatch.setattr(batching, "BATCH", 5)
    monkeypatch.setattr(engine, "HELD", 2)


def all_numbers(certificate: Certificate) -> list[Any]:
    levels = [
        (level.gamma, level.bound.tolist(), level.loss.tolist(), level.transport_cost.tolist())
        for level in certificate.dual_values
    ]
    return [as_json(certificate), levels, certificate.evidence]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        pytest.param(*case, id=name, marks=() if name == "a confidence" else pytest.mark.soak)
        for name, case in CASES.items()
    ],
)
def test_any_number_of_workers_gives_the_same_bits(
    data: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    model = network("tanh", 1, classes=1 if "criterion" in options else 3)
    alone, *others = [certify(model, data, n_jobs=jobs, **ASK | options) for jobs in (1, 2, 3)]
    assert alone.evidence is Evidence.PROVEN
    for other in others:
        assert all_numbers(other) == all_numbers(alone)
    for number, certificate in enumerate((alone, others[0])):
        (tmp_path / str(number)).mkdir()
        certificate.save(tmp_path / str(number) / "certificate.json", include_data=True)
    first, second = ((tmp_path / str(number) / "witnesses.safetensors").read_bytes() for number in range(2))
    assert first == second
    if (
        "class_weights" not in options
    ):  # whose samples are checked in other company, which changes last digits
        verified = Certificate.load(tmp_path / "1" / "certificate.json").verify()
        assert verified.evidence is Evidence.PROVEN


def test_threads_do_not_matter_and_stay_as_they_were() -> None:
    model, threads = network("softplus", 2), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        three = certify(model, (INPUTS, LABELS), **ASK)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert all_numbers(three) == all_numbers(certify(model, (INPUTS, LABELS), **ASK))


def test_a_checkpoint_continues_with_other_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers fill it; then one process, which is not allowed to search, has the same certificate."""
    model = network("tanh", 1)
    first = certify(model, (INPUTS, LABELS), n_jobs=2, checkpoint=tmp_path / "unfinished", **ASK)

    def refused(problem: Problem, gamma: float) -> Tensor:
        raise AssertionError(f"searched again at {gamma}")

    monkeypatch.setattr(local_bounds, "proposed_moves", refused)
    again = certify(model, (INPUTS, LABELS), checkpoint=tmp_path / "unfinished", **ASK)
    assert all_numbers(again) == all_numbers(first)
    with pytest.raises(AssertionError, match="searched again"):
        certify(network("tanh", 2), (INPUTS, LABELS), checkpoint=tmp_path / "unfinished", **ASK)
    with pytest.raises(AssertionError, match="searched again"):
        certify(model, (INPUTS + 0.01, LABELS), checkpoint=tmp_path / "unfinished", **ASK)


class _Stopped(ProposalCache):
    """Interrupted when some moves are stored."""

    def save(self, gamma: float, portion: int, moves: Tensor) -> None:
        if self.count == 3:
            raise KeyboardInterrupt
        super().save(gamma, portion, moves)


def test_an_interrupted_certification_keeps_what_workers_have_done(tmp_path: Path) -> None:
    model = network("tanh", 1)
    with pytest.raises(KeyboardInterrupt):
        certify(model, (INPUTS, LABELS), n_jobs=2, cache=_Stopped(tmp_path, "question"), **ASK)
    memory = ProposalCache(tmp_path, "question")
    assert memory.count == 3
    again = certify(model, (INPUTS, LABELS), n_jobs=2, cache=memory, **ASK)
    assert all_numbers(again) == all_numbers(certify(model, (INPUTS, LABELS), **ASK))


def end_itself(question: Question, portion: Problem, progress: Progress) -> None:
    """A task that a worker does not survive."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_ends_is_named_with_the_remedy() -> None:
    problem = Problem.of(network("tanh", 0), (INPUTS, LABELS), CROSS_ENTROPY, L2, EVERYWHERE)
    grid = engine.make_grid(problem, (0.1,), (1.0,), 0)
    mapper = Mapper(Question(problem, grid, None, None, 0), 2, "Finished portions are stored in FOLDER.")
    with pytest.raises(WorkerError, match=r"fewer workers .* stored in FOLDER"):
        list(mapper.map(end_itself, [(problem, ())] * 3))


def test_the_model_is_compared_at_moved_points(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Tensor] = []
    check = OriginalModel.check

    def spied(self: OriginalModel, points: Tensor, expected: Tensor, error: Tensor) -> None:
        compared.append(points)
        check(self, points, expected, error)

    monkeypatch.setattr(OriginalModel, "check", spied)
    certify(network("tanh", 1), (INPUTS, LABELS), n_jobs=2, **ASK)
    apart = (torch.cat(compared)[:, None] - INPUTS).norm(dim=2).amin(1)
    assert (apart == 0).sum() >= len(INPUTS)
    assert (apart > 0.01).sum() > 10


def test_what_n_jobs_may_be() -> None:
    assert worker_count(1) == 1
    assert worker_count(-1) >= 1
    for wrong in (0, 1.5):
        with pytest.raises(ArgumentError, match="`n_jobs` must be an integer other than 0"):
            certify(network("tanh", 1), (INPUTS, LABELS), n_jobs=wrong, **ASK)  # type: ignore[arg-type]
