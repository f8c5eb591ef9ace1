"""Certificates on a Dask cluster: a real scheduler and two workers, one of which is killed."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import joblib
import pytest

from certus import certify
from certus.certificates import batching
from certus.certificates.parallel import dask_cluster
from certus.errors import ArgumentError
from tests.certificates.problems import network, samples
from tests.certificates.test_parallel import all_numbers

distributed = pytest.importorskip("distributed")

ASK: dict[str, Any] = {"rho": 0.1, "gammas": (8.0, 1.0), "local_radii": 1, "attack_steps": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of distributed's own start and end
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as started:
            yield started


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_changes_no_number(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BATCH", 3)
    model, data = network("tanh", 1), samples(1, 24)
    alone = certify(model, data, **ASK)
    killed: list[int] = []
    with distributed.Client(cluster) as client:
        processes = list(client.run(os.getpid).values())
        assert len(set(processes)) == 2

        def kill_once(share: float) -> None:
            if not killed:
                killed.append(processes[0])
                os.kill(processes[0], signal.SIGKILL)

        with joblib.parallel_config(backend="dask"):
            together = certify(model, data, progress=kill_once, **ASK)
    assert killed
    assert all_numbers(together) == all_numbers(alone)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_by_its_address(cluster: Any) -> None:
    model, data = network("tanh", 1), samples(1, 8)
    alone = certify(model, data, **ASK)
    with dask_cluster(cluster.scheduler_address):
        assert all_numbers(certify(model, data, **ASK)) == all_numbers(alone)


def test_an_address_that_is_none() -> None:
    with pytest.raises(ArgumentError, match="address of a Dask scheduler"), dask_cluster("nonsense"):
        pass
