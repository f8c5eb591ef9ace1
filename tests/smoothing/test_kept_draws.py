"""An interrupted certification by smoothing goes on with what it kept, if that is what is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from certus.data import Samples
from certus.smoothing import SmoothedCertificate, certify_smoothed
from certus.smoothing import sampling as drawing
from certus.smoothing.sampling import PredictionCache
from certus.storage.tensors import load_tensors, save_tensors

COUNT, PORTION = 40, 16
DATA = Samples(torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(0)), torch.arange(COUNT) % 2)
OTHERS = Samples(torch.randn(20, 2, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2)


class Counting:
    """A half-plane that counts how often it is asked, and may fail after so many inputs."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.asked, self.limit = 0, limit

    def __call__(self, inputs: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> object:
        self.asked += len(inputs)
        if self.asked > self.limit:
            raise KeyboardInterrupt
        return (inputs[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_PORTION", PORTION)


def certificate(model: Counting, memory: PredictionCache | None, data: Samples = DATA) -> SmoothedCertificate:
    found = certify_smoothed(
        *(model, data),
        rho=(0.01, 0.1),
        sigma=0.5,
        draws=10,
        votes=9,
        abstain=None,
        calibration=OTHERS,
        attack_steps=2,
        cache=memory,
    )
    assert isinstance(found, SmoothedCertificate)
    return found


def test_an_interrupted_one_comes_out_the_same_and_asks_less(tmp_path: Path) -> None:
    whole = Counting()
    expected = certificate(whole, None).as_json()
    memory = PredictionCache(tmp_path / "kept", "question")
    with pytest.raises(KeyboardInterrupt):
        certificate(Counting(limit=0.7 * whole.asked), memory)
    before = memory.count
    assert before >= 5  # of calibration, of the samples, and of the first points that moved
    second = Counting()
    assert certificate(second, memory).as_json() == expected
    saved = whole.asked - second.asked
    assert saved >= 10 * 9 * (before - 2)  # portions have at least 4 samples
    third = Counting()
    assert certificate(third, memory).as_json() == expected
    assert third.asked < second.asked
    memory.clear()
    assert not (tmp_path / "kept").exists()


def test_nothing_is_taken_over_from_another_question_or_other_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    memory = PredictionCache(tmp_path / "kept", "question", said.append)
    certificate(Counting(), memory)
    other = PredictionCache(tmp_path / "kept", "another", said.append)
    assert other.count == 0
    moved = replace(DATA, inputs=DATA.inputs + 1)
    fresh, again = Counting(), Counting()
    expected = certificate(fresh, None, moved).as_json()
    assert certificate(again, memory, moved).as_json() == expected
    assert any("samples 0 to 15 is computed again: it belongs to another problem" in one for one in said)
    monkeypatch.setattr("certus.certificates.cache.code_digest", lambda: "0" * 16)
    assert memory.count == 0


@pytest.mark.parametrize("kind", ["cut", "changed", "another shape", "no losses"])
def test_damaged_predictions_are_computed_again(tmp_path: Path, kind: str) -> None:
    said: list[str] = []
    memory = PredictionCache(tmp_path / "kept", "question", said.append)
    expected = certificate(Counting(), memory).as_json()
    (file,) = (tmp_path / "kept").glob("*-2-16.safetensors")  # the second portion of the samples
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:-8])
    elif kind == "changed":
        content = bytearray(file.read_bytes())
        content[-4] ^= 1
        file.write_bytes(content)
    else:
        tensors, note = load_tensors(file)
        assert set(tensors) == {"labels"}
        if kind == "another shape":
            tensors["labels"] = tensors["labels"][:, :-1].clone()
        else:
            tensors["losses"] = torch.full((16, 10), 2.0, dtype=torch.float64)
        save_tensors(file, tensors, note)
    again = Counting()
    assert certificate(again, memory).as_json() == expected
    assert len(said) == 1
    assert said[0].startswith("What was kept of samples 16 to 31 is computed again")


def test_portions_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = certificate(Counting(), None).as_json()
    monkeypatch.setattr(drawing, "_PORTION", 7)
    assert certificate(Counting(), None).as_json() == expected
