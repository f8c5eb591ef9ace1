"""Proposals kept by an interrupted certification: used again, and checked again."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from certus import Certificate, certify
from certus.certificates import Problem, local_bounds
from certus.certificates import cache as kept
from certus.certificates.cache import ProposalCache
from certus.certificates.dual_values import climb, proposed_moves
from certus.certificates.files import as_json
from certus.certificates.local_bounds import LocalBounds
from certus.certificates.proposals import on_grid
from certus.costs import LabelCost, Masked, SquaredL2
from certus.domains import Ball, Box
from certus.losses import CrossEntropy, SquaredError
from tests.certificates.problems import network, samples

GAMMAS, COUNT, CLIP = (8.0, 4.0, 2.0), 30, 3.0
DATA = samples(1, COUNT)


def certificate(memory: ProposalCache | None = None) -> Certificate:
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
    return certificate(ProposalCache(folder, "question")), folder


@pytest.fixture
def memory(whole: tuple[Certificate, Path], tmp_path: Path) -> tuple[ProposalCache, list[str]]:
    """A copy of the levels, and what is remarked upon them."""
    said: list[str] = []
    shutil.copytree(whole[1], tmp_path / "unfinished")
    return ProposalCache(tmp_path / "unfinished", "question", said.append), said


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The γ at which ascents run."""
    gammas: list[float] = []
    propose = LocalBounds.proposals

    def counted(self: LocalBounds, gamma: float) -> Tensor:
        gammas.append(gamma)
        return propose(self, gamma)

    monkeypatch.setattr(LocalBounds, "proposals", counted)
    return gammas


def test_cached_proposals_are_used(
    whole: tuple[Certificate, Path], memory: tuple[ProposalCache, list[str]], solved: list[float]
) -> None:
    (next(memory[0].folder.glob(f"*{GAMMAS[2].hex()}-0.safetensors"))).unlink()
    again = certificate(memory[0])
    assert solved == [GAMMAS[2]]
    assert memory[1] == []
    assert as_json(again) == as_json(whole[0])
    memory[0].clear()
    assert not memory[0].folder.exists()


FORGED: dict[str, Callable[[Tensor], Tensor]] = {
    "nowhere": torch.zeros_like,
    "back": lambda moves: -moves,
    "far": lambda moves: 1e30 * torch.ones_like(moves),
    "nan": lambda moves: torch.full_like(moves, math.nan),
    "others": lambda moves: moves.flip(1),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_forged_proposals_make_bounds_loose_never_wrong(
    forge: Callable[[Tensor], Tensor],
    whole: tuple[Certificate, Path],
    memory: tuple[ProposalCache, list[str]],
) -> None:
    """Even with a digest of their own: the forger writes as certus does. φ_γ is searched for on a grid."""
    axis = torch.linspace(-3, 3, 161, dtype=torch.float64)
    moves = torch.cartesian_prod(axis, axis)
    model = network("tanh", 1, size=3.0)
    for gamma in GAMMAS:
        honest = memory[0].load(gamma, 0, (1, COUNT, 2))
        assert honest is not None
        memory[0].save(gamma, 0, forge(honest))
    again = certificate(memory[0])
    assert memory[1] == []
    for index, (point, label) in enumerate(zip(*DATA, strict=True)):
        with torch.no_grad():
            outputs = model(point + moves)
        losses = torch.nn.functional.cross_entropy(outputs, label.expand(len(moves)), reduction="none")
        for level in again.dual_values:
            worst = float((losses.clamp_max(CLIP) - level.gamma * (moves**2).sum(1)).max())
            assert worst <= float(level.bound[index])
            assert float(level.loss[index] - level.gamma * level.transport_cost[index]) <= worst + 2e-2
    for rho in again.rhos:
        assert whole[0].bound(rho) * (1 - 1e-9) <= again.bound(rho)
        assert again.lower(rho) <= whole[0].lower(rho) * (1 + 1e-9)


@pytest.mark.parametrize(
    "change",
    [lambda moves: moves[:, :-1], lambda moves: moves.double(), lambda moves: moves[0]],
    ids=["fewer", "double", "labels"],
)
def test_proposals_of_another_shape_are_computed_again(
    change: Callable[[Tensor], Tensor],
    whole: tuple[Certificate, Path],
    memory: tuple[ProposalCache, list[str]],
    solved: list[float],
) -> None:
    moves = memory[0].load(GAMMAS[1], 0, (1, COUNT, 2))
    assert moves is not None
    memory[0].save(GAMMAS[1], 0, change(moves))
    assert as_json(certificate(memory[0])) == as_json(whole[0])
    assert solved == [GAMMAS[1]]
    words = "The cached result at gamma = 4 is computed again: it does not hold moves of 30 samples."
    assert memory[1] == [words]


def test_moves_are_rounded_towards_zero() -> None:
    """Inside a box of 1 they stay there, and what is frozen does not move, bit for bit."""
    inputs, labels = samples(3, 60)
    inputs = inputs / inputs.abs().amax()
    cost, box = Masked(SquaredL2(), torch.tensor([True, False])), Box(-1.0, 1.0)
    problem = Problem.of(network("tanh", 1, size=3.0), (inputs, labels), CrossEntropy(), cost, box)
    for gamma in (0.01, 0.3):
        with torch.no_grad():
            exact = climb(problem, gamma) - problem.inputs
        moves = proposed_moves(problem, gamma)
        assert moves.dtype == torch.float32
        assert bool((moves.double().abs() <= exact.abs()).all())
        largest = exact.abs().amax(1, keepdim=True)
        assert bool((exact.abs() - moves.double().abs() <= 2.0**-14 * largest).all())
        assert torch.equal(on_grid(moves), moves)
        points = problem.inputs + moves.double()
        assert bool((points.abs() <= 1).all())
        assert torch.equal(points[:, 1], problem.inputs[:, 1])
    assert bool((moves[:, 0] != 0).any())


def test_points_that_leave_a_domain_are_projected() -> None:
    """Attained are points of the domain alone; what is proposed may be anywhere."""
    inputs, labels = samples(2, 12)
    ball = Ball(0.0, float(inputs.norm(dim=1).max()))
    ask: dict[str, Any] = {"rho": 0.1, "gammas": (0.5,), "gamma_rounds": 0, "attack_steps": 0, "domain": ball}
    model = network("tanh", 1, size=3.0)
    with pytest.MonkeyPatch.context() as patch:
        far = lambda problem, gamma: 5 * torch.ones_like(problem.inputs).float()  # noqa: E731
        patch.setattr(local_bounds, "proposed_moves", far)
        found = certify(model, (inputs, labels), **ask)
        assert found.source is not None
        points = found.source.transported(0.5).inputs
    assert bool(ball.contains(points).all())
    assert bool((points != inputs).any())
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model(points), labels, reduction="none")
    torch.testing.assert_close(found.dual_values[0].loss, losses)


def test_damaged_levels_are_computed_again(
    whole: tuple[Certificate, Path], memory: tuple[ProposalCache, list[str]], solved: list[float]
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
    memory: tuple[ProposalCache, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory[0].load(GAMMAS[0], 0, (1, COUNT, 2)) is not None
    assert ProposalCache(memory[0].folder, "another").load(GAMMAS[0], 0, (1, COUNT, 2)) is None
    old = next(memory[0].folder.glob(f"*-{GAMMAS[0].hex()}-0.*")).read_bytes()
    monkeypatch.setattr(kept, "code_digest", lambda: "0" * 16)
    assert memory[0].load(GAMMAS[0], 0, (1, COUNT, 2)) is None
    # Renamed, it is not used either.
    memory[0]._file(f"{GAMMAS[0].hex()}-0").write_bytes(old)
    assert memory[0].load(GAMMAS[0], 0, (1, COUNT, 2)) is None
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
        memory = ProposalCache(tmp_path, "question")
        common = {"rho": 0.1, "gammas": GAMMAS, "local_radii": 1, "gamma_rounds": 0, "attack_steps": 0}
        if case == "labels":
            price = LabelCost(0.05, classes=3)
            return certify(model, (inputs, targets), label_cost=price, cache=memory, **common)  # type: ignore[arg-type]
        return certify(model, (inputs, targets), criterion=SquaredError(), cache=memory, **common)  # type: ignore[arg-type]

    first = once()
    assert len(solved) == 3
    assert as_json(once()) == as_json(first)
    assert len(solved) == 3
