"""Searches for trees, here or in other processes, in one order.

Workers only propose: the kernel evaluates every proof in this process. Questions do not depend on each other,
and each is answered in one thread, so that the answers are the same for any number of workers.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import joblib

from certus.certificates.parallel import closed_quietly, explain_lost_workers, one_thread
from certus.errors import WorkerError
from certus.kernel.trees import Ensemble, Prices
from certus.storage.files import code_digest

if TYPE_CHECKING:
    from certus.certificates.tree_search import Answer, Question, TreeSearch

_PORTIONS = 4  # of the questions, for each worker


@dataclass
class TreeWorkers:
    """Answers questions about one ensemble and one cost.

    Attributes:
        jobs: number of workers; with 1 everything is searched here.
    """

    ensemble: Ensemble
    prices: Prices
    jobs: int = 1
    _key: str = field(default_factory=lambda: secrets.token_hex(16))

    def answers(self, questions: Sequence[Question]) -> Generator[Answer]:
        """Yield the answers in the order of the questions."""
        if self.jobs == 1:
            search = _searching(self._key, (self.ensemble, self.prices))
            yield from map(search.answer, questions)
            return
        trees = replace(self.ensemble), self.prices  # without its cached boxes
        size = max(1, -(-len(questions) // (_PORTIONS * self.jobs)))
        lost = "Nothing of this search is stored: certify again."
        with explain_lost_workers(lost), joblib.Parallel(self.jobs, return_as="generator") as parallel:
            calls = (
                joblib.delayed(_work)(self._key, trees, code_digest(), questions[start : start + size])
                for start in range(0, len(questions), size)
            )
            with closed_quietly(parallel(calls)) as results:
                for answers in results:
                    yield from answers


_LAST: dict[str, TreeSearch] = {}  # the ensemble that this process searches


def _searching(key: str, trees: tuple[Ensemble, Prices]) -> TreeSearch:
    from certus.certificates.tree_search import TreeSearch  # numba takes its time to load

    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = TreeSearch(*trees)
    return _LAST[key]


def _work(
    key: str, trees: tuple[Ensemble, Prices], version: str, questions: Sequence[Question]
) -> list[Answer]:
    """Answer some questions in a worker."""
    if version != code_digest():
        raise WorkerError("A worker has another version of certus: install the same one everywhere.")
    with one_thread():
        search = _searching(key, trees)
        return [search.answer(question) for question in questions]
