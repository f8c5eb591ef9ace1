"""Levels kept by an interrupted certification: used again if they are what was computed, and only then."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from certus import Certificate, certify
from certus.certificates import cache as kept
from certus.certificates.cache import SPOT_CHECKED, DualValueCache, spot_checked_samples
from certus.certificates.dual_values import DualValues
from certus.certificates.files import as_json
from certus.certificates.local_bounds import LocalBounds
from certus.costs import LabelCost
from certus.data import Samples
from certus.losses import SquaredError
from certus.storage.tensors import load_tensors, save_tensors
from tests.certificates.problems import network, samples
from tests.certificates.small_run import certify_small, make_run

GAMMAS, COUNT, CLIP = (8.0, 4.0, 2.0), 30, 3.0
DATA = samples(1, COUNT)


def certificate(memory: DualValueCache | None = None) -> Certificate:
    return certify(
        *(network("tanh", 1, size=3.0), DATA),
        rho=(0.01, 0.1),
        gammas=GAMMAS,
        clip=CLIP,
        local_radii=1,
        gamma_rounds=0,
        attack_steps=0,
        cache=memory,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Path]:
    """The certificate, and the folder of its levels."""
    folder = tmp_path_factory.mktemp("kept") / "unfinished"
    return certificate(DualValueCache(folder, "question")), folder


@pytest.fixture
def memory(whole: tuple[Certificate, Path], tmp_path: Path) -> tuple[DualValueCache, list[str]]:
    """A copy of the levels, and what is remarked upon them."""
    said: list[str] = []
    shutil.copytree(whole[1], tmp_path / "unfinished")
    return DualValueCache(tmp_path / "unfinished", "question", said.append), said


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The γ whose levels are computed."""
    found: list[float] = []
    solve = LocalBounds.level

    def counted(self: LocalBounds, gamma: float) -> tuple[DualValues, Samples]:
        if len(self.problem) > SPOT_CHECKED:
            found.append(gamma)
        return solve(self, gamma)

    monkeypatch.setattr(LocalBounds, "level", counted)
    return found


def test_kept_levels_are_used(
    whole: tuple[Certificate, Path], memory: tuple[DualValueCache, list[str]], solved: list[float]
) -> None:
    (next(memory[0].folder.glob(f"*{GAMMAS[2].hex()}-0.safetensors"))).unlink()
    again = certificate(memory[0])
    assert solved == [GAMMAS[2]]
    assert memory[1] == []
    assert as_json(again) == as_json(whole[0])
    memory[0].clear()
    assert not memory[0].folder.exists()


def _with(**changes: Callable[[DualValues], Tensor]) -> Callable[[DualValues], DualValues]:
    return lambda level: DualValues(**vars(level) | {name: change(level) for name, change in changes.items()})


def _at(values: Tensor, index: int, value: float) -> Tensor:
    new = values.clone()
    new[index] = value
    return new


def _safe(level: DualValues) -> Tensor:
    """The least bound that nothing at the level itself contradicts."""
    with torch.no_grad():
        outputs = network("tanh", 1, size=3.0)(DATA[0])
    losses = torch.nn.functional.cross_entropy(outputs, DATA[1], reduction="none").clamp_max(CLIP)
    return torch.maximum(losses, level.loss - level.gamma * level.transport_cost)


FORGED: dict[str, tuple[Callable[[DualValues], DualValues], str]] = {
    "nothing": (_with(bound=lambda level: torch.full_like(level.bound, 1e-14)), "a bound is below the loss"),
    "one bound": (_with(bound=lambda level: _at(level.bound, 3, -1.0)), "a bound is below the loss"),
    "nan": (_with(bound=lambda level: _at(level.bound, 3, math.nan)), "it exceeds the clip"),
    "clip": (_with(bound=lambda level: level.bound + CLIP), "it exceeds the clip 3"),
    "bounds": (_with(bound=_safe), "some of its samples come out otherwise"),
    "higher": (_with(bound=lambda level: level.bound * (1 + 1e-6)), "some of its samples come out otherwise"),
    "attained": (
        _with(
            loss=lambda level: level.bound + 1e-9, transport_cost=lambda level: torch.zeros_like(level.bound)
        ),
        "what was attained exceeds a bound",
    ),
    "just attained": (_with(loss=lambda level: level.bound), "some of its samples come out otherwise"),
    "infinite": (_with(loss=lambda level: _at(level.loss, 3, -math.inf)), "are not those of points"),
    "negative": (_with(transport_cost=lambda level: -level.transport_cost - 1), "are not those of points"),
    "errors": (
        _with(attained_error_cost=lambda level: torch.zeros_like(level.bound)),
        "an error costs less than is certified",
    ),
    "fewer": (_with(bound=lambda level: level.bound[:-1]), "it does not hold numbers for 30 samples"),
    "single": (_with(loss=lambda level: level.loss.float()), "it does not hold numbers for 30 samples"),
    "rule": (_with(rule=lambda level: _at(level.rule, 3, 7)), "it names a rule that there is not"),
    "rules": (_with(rule=lambda level: level.rule.double()), "it does not hold numbers for 30 samples"),
}


@pytest.mark.parametrize(("forge", "reason"), FORGED.values(), ids=FORGED.keys())
def test_forged_levels_are_computed_again(
    forge: Callable[[DualValues], DualValues],
    reason: str,
    whole: tuple[Certificate, Path],
    memory: tuple[DualValueCache, list[str]],
    solved: list[float],
) -> None:
    """Even with a digest of their own: the forger writes as certus does."""
    level = memory[0].load(GAMMAS[1])
    assert level is not None
    memory[0].save(forge(level))
    again = certificate(memory[0])
    assert solved == [GAMMAS[1]]
    (said,) = memory[1]
    assert said.startswith("The cached result at gamma = 4 is computed again: ")
    assert reason in said
    assert as_json(again) == as_json(whole[0])


def test_damaged_levels_are_computed_again(
    whole: tuple[Certificate, Path], memory: tuple[DualValueCache, list[str]], solved: list[float]
) -> None:
    first, second, third = (next(memory[0].folder.glob(f"*-{gamma.hex()}-0.*")) for gamma in GAMMAS)
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:100])
    shutil.copy(whole[1] / second.name, third)  # a level of another γ
    assert as_json(certificate(memory[0])) == as_json(whole[0])
    assert solved == list(GAMMAS)
    assert "does not have the sha256 it was written with" in memory[1][0]
    assert "is corrupt" in memory[1][1]
    assert "it belongs to another problem, or to another version of the bounds" in memory[1][2]


def test_levels_of_other_bounds_or_questions_are_not_looked_at(
    memory: tuple[DualValueCache, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory[0].load(GAMMAS[0]) is not None
    assert DualValueCache(memory[0].folder, "another").load(GAMMAS[0]) is None
    old = next(memory[0].folder.glob(f"*-{GAMMAS[0].hex()}-0.*")).read_bytes()
    monkeypatch.setattr(kept, "code_digest", lambda: "0" * 16)
    assert memory[0].load(GAMMAS[0]) is None
    # Renamed, it is not used either.
    memory[0]._file(f"{GAMMAS[0].hex()}-0").write_bytes(old)
    assert memory[0].load(GAMMAS[0]) is None
    assert "another version of the bounds" in memory[1][0]


@pytest.mark.parametrize("case", ["labels", "regression"])
def test_levels_with_labels_that_move_and_of_a_regression(
    case: str, tmp_path: Path, solved: list[float]
) -> None:
    """Their errors and costs are of another kind."""
    model = network("tanh", 1, classes=3 if case == "labels" else 1)
    inputs, labels = samples(2, 12)
    targets = labels if case == "labels" else labels.double()

    def once() -> Certificate:
        memory = DualValueCache(tmp_path, "question")
        common = {"rho": 0.1, "gammas": GAMMAS, "local_radii": 1, "gamma_rounds": 0, "attack_steps": 0}
        if case == "labels":
            price = LabelCost(0.05, classes=3)
            return certify(model, (inputs, targets), label_cost=price, cache=memory, **common)  # type: ignore[arg-type]
        return certify(model, (inputs, targets), criterion=SquaredError(), cache=memory, **common)  # type: ignore[arg-type]

    first = once()
    assert len(solved) == 3
    assert as_json(once()) == as_json(first)
    assert len(solved) == 3


def test_the_probed_samples_are_always_the_same() -> None:
    assert spot_checked_samples(3).tolist() == [0, 1, 2]
    index = spot_checked_samples(1000)
    assert len(set(index.tolist())) == SPOT_CHECKED
    assert torch.equal(index, spot_checked_samples(1000))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose certification left its levels behind."""
    place = tmp_path_factory.mktemp("interrupted")
    make_run(place, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualValueCache, "clear", lambda self: None)
        certify_small(place, 1.0, *QUICK)
    return place


QUICK = ("--gamma-rounds", "0", "--attack-steps", "0")


def forge_levels(place: Path, forge: Callable[[float, dict[str, Tensor]], None]) -> None:
    for path in (place / "run/certificate/unfinished").iterdir():
        tensors, note = load_tensors(path)
        forge(float.fromhex(note["gamma"]), tensors)
        save_tensors(path, tensors, note)


def certify_again(place: Path, copy: Path) -> str:
    """Go on from the levels, to the same certificate; what stderr says."""
    folder = copy / "run/certificate"
    said = certify_small(copy, 1.0, *QUICK)
    assert (folder / "certificate.json").read_text() == (
        place / "run/certificate/certificate.json"
    ).read_text()
    assert not (folder / "unfinished").exists()
    return said


def test_the_forgery_that_printed_at_most_nothing(interrupted: Path, tmp_path: Path) -> None:
    """The defect: levels were trusted as found, and "at least 1.18, at most 1e-14" was printed."""
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))

    def forge(gamma: float, tensors: dict[str, Tensor]) -> None:
        tensors["bound"].fill_(1e-14)
        tensors["loss"].fill_(1.18)

    forge_levels(copy, forge)
    said = certify_again(interrupted, copy)
    assert said.count("is computed again: a bound is below the loss of the sample itself.") == 3


def test_levels_that_contradict_each_other_are_all_computed_again(interrupted: Path, tmp_path: Path) -> None:
    """Forged at a sample that is not probed: what one level attains exceeds what another one proves."""
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))

    def forge(gamma: float, tensors: dict[str, Tensor]) -> None:
        sample = min(
            set(range(len(tensors["bound"]))) - set(spot_checked_samples(len(tensors["bound"])).tolist())
        )
        if gamma == 2.0:
            tensors["loss"][sample] = tensors["bound"][sample]
            tensors["transport_cost"][sample] = 0.0

    forge_levels(copy, forge)
    said = certify_again(interrupted, copy)
    assert "What was attained exceeds what was proven" in said
    assert "All kept results are computed again." in said
