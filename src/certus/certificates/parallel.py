"""Map tasks over portions of the samples: in this process, in others, or on a cluster, through joblib.

A task is a function of one portion and of ``Question``, all that portions share. Other processes get the
network as the content of the two files that the kernel reads (``graph_files``), never as a pickled module:
joblib puts it into shared memory, and sends it with each task on a cluster. Every process computes in one
thread, so that the numbers do not depend on how many there are, bit for bit.

The caller's own model stays in this process. A worker returns a few of the points at which its outputs count,
and they are compared here (``OriginalModel``); the model is compared at all samples in any case.
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from safetensors.torch import save
from torch import Tensor

from certus.bounds.analysis import Analysis
from certus.bounds.equivalence import OriginalModel
from certus.certificates.graph_files import describe_problem
from certus.certificates.local_bounds import Grid, weighted_losses
from certus.certificates.problem import FunctionModule, Problem
from certus.errors import ArgumentError, UnsupportedError, WorkerError, optional_import, require
from certus.kernel.files import build_problem, parse_object, parse_tensors
from certus.kernel.losses import SquaredError
from certus.losses import ModelLoss
from certus.storage.files import code_digest
from certus.storage.tensors import digest

_AHEAD = 8  # portions that are read at once, for each worker
_LOST = ("KilledWorker", "FutureCancelledError")  # of Dask, which may not be installed
_COMPARED = 2  # points of each evaluation, at which the caller's model is compared

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def worker_count(n_jobs: int) -> int:
    """The number of workers: all cores for −1, all but one for −2, as scikit-learn counts.

    A backend that is active, such as that of a Dask cluster, decides for ``n_jobs=1``.
    """
    require(isinstance(n_jobs, int) and n_jobs != 0, "n_jobs", "be an integer other than 0", n_jobs)
    return int(joblib.effective_n_jobs(None if n_jobs == 1 else n_jobs))


@contextmanager
def dask_cluster(address: str | None) -> Iterator[None]:
    """Let joblib use the workers of a Dask cluster; None leaves its backend as it is.

    Args:
        address: of the scheduler, such as "tcp://10.0.0.1:8786".
    """
    if address is None:
        yield
        return
    remedy = "A Dask cluster needs dask and distributed: pip install certus[cluster]."
    distributed = optional_import("distributed", remedy)
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=True)
    except (OSError, ValueError, TypeError) as reason:
        rule = "be the address of a Dask scheduler that answers, such as tcp://10.0.0.1:8786"
        raise ArgumentError(f"`cluster` must {rule}; got {address}: {reason}") from None
    with client, joblib.parallel_config(backend="dask"):
        yield


@contextmanager
def closed_quietly(results: Generator[Any]) -> Iterator[Generator[Any]]:
    """Close the results of joblib after the block, without warnings of tasks that Ctrl-C left unfinished."""
    try:
        yield results
    finally:
        with warnings.catch_warnings(action="ignore"):
            results.close()


@contextmanager
def explain_lost_workers(stored: str) -> Iterator[None]:
    """Turn the death of a worker into a ``WorkerError`` with the remedy.

    Args:
        stored: where finished work is, in words.
    """
    try:
        yield
    except Exception as reason:
        if not isinstance(reason, TerminatedWorkerError) and type(reason).__name__ not in _LOST:
            raise
        raise WorkerError(
            "A worker process ended before its work was done: it was killed, or ran out of memory. Use fewer "
            f"workers (n_jobs, --jobs), each of which needs memory of its own. {stored}"
        ) from None


@dataclass(frozen=True, eq=False)
class Question:
    """Problem and options that all portions share.

    Attributes:
        problem: about any samples; clip: B, if it is min(ℓ, B) that is certified.
        class_weights: (classes,) by which losses count; None if all count alike.
        attack_steps: of the attacks that the lower sides rest on beside the ascents.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    class_weights: Tensor | None
    attack_steps: int

    @property
    def labels(self) -> int:
        """The number of labels that each sample may take."""
        return 1 if self.problem.label_cost is None else self.problem.label_cost.classes

    def digests(self) -> dict[str, object]:
        """Return digests of everything but the samples that proposals depend on, as JSON."""
        try:
            description, tensors = describe_problem(self.problem.kernel)
        except UnsupportedError as reason:
            rule = "be left out for this problem, whose digest has no place for code"
            raise ArgumentError(f"`checkpoint` must {rule}: {reason}") from None
        weights = None if self.class_weights is None else self.class_weights.tolist()
        return {"network": digest(tensors, json.dumps(description)), "class_weights": weights}

    def weighted(self, losses: Tensor, portion: Problem) -> Tensor:
        """Return (n,) losses times the weights of their labels, rounded down and clipped."""
        return self.clipped(weighted_losses(losses, portion.targets, self.class_weights))

    def clipped(self, losses: Tensor) -> Tensor:
        """Return (n,) losses, clipped at B if the certificate is."""
        return losses if self.clip is None else losses.clamp_max(self.clip)


Progress = Callable[[float], None]
Task = Callable[..., Any]
"""(question, portion, *arguments, progress) → result; named at the top of a module, so that it pickles."""


class Outputs(NamedTuple):
    """(m, …) points, and the outputs of the graph there with their rounding."""

    points: Tensor
    expected: Tensor
    error: Tensor


class _Recorder(OriginalModel):
    """Takes the place of the caller's model in a worker: keeps some of the points to be compared."""

    def __init__(self) -> None:
        self.kept: list[Outputs] = []
        self._calls = 0

    def check(self, points: Tensor, expected: Tensor, error: Tensor) -> None:
        if len(points):
            self._calls += 1
            rows = (torch.arange(_COMPARED) * 7919 + self._calls * 31) % len(points)
            self.kept.append(Outputs(points[rows], expected[rows], error[rows]))


@dataclass(frozen=True, eq=False)
class Packed:
    """A question without its network, whose files are sent beside it.

    Attributes:
        key: names the question; split: the length of graph.json, behind which graph.safetensors begins.
        parts: of the problem; settings: the rest of the question.
    """

    key: str
    split: int
    parts: dict[str, Any]
    settings: dict[str, Any]

    @staticmethod
    def of(question: Question) -> tuple[Packed, Bytes]:
        """Return the packed question and the content of both files."""
        problem = question.problem
        try:
            description, tensors = describe_problem(problem.analysis.problem)
        except UnsupportedError as reason:
            raise ArgumentError(
                f"`n_jobs` must be 1 for this problem, since workers get it as a file: {reason}"
            ) from None
        text, numbers = json.dumps(description).encode(), save(tensors)
        names = ("cost", "domain", "label_cost", "smoothness", "claimed", "encoding", "deployment")
        parts = {name: getattr(problem, name) for name in names} | {"criterion": problem.loss.criterion}
        options = ("grid", "clip", "class_weights", "attack_steps")
        settings = {name: getattr(question, name) for name in options}
        packed = Packed(secrets.token_hex(16), len(text), parts, settings)
        return packed, np.frombuffer(text + numbers, dtype=np.uint8)

    def question(self, network: Bytes) -> Question:
        """Build the question again, in another process; the kernel checks the claimed norms."""
        content, parts = bytes(network), dict(self.parts)
        description = parse_object(content[: self.split])
        nodes = description["graph"]["nodes"]
        inputs = torch.empty(0, *nodes[0]["shape"], dtype=torch.float64)
        targets = torch.empty(0, *nodes[-1]["shape"], dtype=torch.float64)
        if description["loss"]["type"] != SquaredError.__name__:
            targets = torch.empty(0, dtype=torch.int64)
        kernel = build_problem(description, parse_tensors(content[self.split :]), (inputs, targets))
        analysis = Analysis.stored(kernel, parts["cost"])
        loss = ModelLoss(FunctionModule(analysis.graph.apply), parts.pop("criterion"))
        problem = Problem(
            loss=loss,
            inputs=inputs,
            targets=targets,
            analysis=analysis,
            original_model=_Recorder(),
            **parts,
        )
        return Question(problem, **self.settings)


_LAST: dict[str, Question] = {}  # the question that this worker answers


def _run_task(
    task: Task,
    network: Bytes,
    packed: Packed,
    version: str,
    samples: tuple[Tensor, Tensor],
    arguments: tuple[Any, ...],
) -> tuple[Any, list[Outputs]]:
    """Run one task in a worker; return its result and the outputs to compare."""
    if version != code_digest():
        raise WorkerError("A worker has another version of certus: install the same one everywhere.")
    with one_thread():
        if packed.key not in _LAST:
            _LAST.clear()
            _LAST[packed.key] = packed.question(network)
        question, recorder = _LAST[packed.key], _Recorder()
        inputs, targets = samples
        portion = replace(question.problem, inputs=inputs, targets=targets, original_model=recorder)
        return task(question, portion, *arguments, lambda units: None), recorder.kept


@dataclass(eq=False)
class Mapper:
    """Maps tasks over portions.

    Attributes:
        jobs: number of workers; with 1 everything is computed here.
        stored: where finished work is, for the message about a worker that ended.
    """

    question: Question
    jobs: int = 1
    stored: str = ""
    _packed: tuple[Packed, Bytes] | None = None

    def map(
        self,
        task: Task,
        portions: Iterable[tuple[Problem, tuple[Any, ...]]],
        progress: Progress = lambda units: None,
    ) -> Iterator[Any]:
        """Yield the results for (portion, arguments), in order.

        Args:
            progress: given to tasks that run in this process; workers do not report.
        """
        if self.jobs == 1:
            for portion, arguments in portions:
                yield task(self.question, portion, *arguments, progress)
            return
        if self._packed is None:
            self._packed = Packed.of(self.question)
        packed, network = self._packed[0], _shared(self._packed[1])
        original, waiting = self.question.problem.original_model, iter(portions)
        with explain_lost_workers(self.stored), joblib.Parallel(self.jobs, return_as="generator") as parallel:
            # Read here, a few at a time: joblib would read in another thread.
            while block := list(islice(waiting, _AHEAD * self.jobs)):
                calls = [
                    joblib.delayed(_run_task)(
                        *(task, network, packed, code_digest()),
                        *((portion.inputs, portion.targets), arguments),
                    )
                    for portion, arguments in block
                ]
                with closed_quietly(parallel(calls)) as results:
                    for result, kept in results:
                        for outputs in kept:
                            original.check(*outputs)
                        yield result


def _shared(network: Bytes) -> Any:
    """Return the files for the active backend. joblib stores an array on one worker of Dask, with which it is
    lost; bytes go with each task."""
    dask = getattr(joblib.parallel.get_active_backend()[0], "client", None) is not None
    return network.tobytes() if dask else network
