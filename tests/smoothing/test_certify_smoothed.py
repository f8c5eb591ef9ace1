"""``certify`` with noise: models of every kind, costs, labels, files and errors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn

import certus
from certus.certificates.population import Move
from certus.costs import LabelCost, Mahalanobis, Masked, SquaredSup, WeightedL2
from certus.errors import ArgumentError, ContradictionError, UnsupportedError
from certus.losses import MissProbability
from certus.smoothing import SmoothedCertificate, certify_smoothed
from certus.smoothing.certificate import Quantity
from certus.smoothing.predictors import Predictor
from certus.smoothing.sampling import ATTACK, CALIBRATION, CERTIFIED, FRESH, Noise, noisy_batches
from certus.storage.files import CorruptFileError, RunError

ASK: dict[str, Any] = {"rho": [0.01, 0.1], "sigma": 0.3, "draws": 20, "votes": 15, "attack_steps": 0}


def samples(count: int = 240, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 2, generator=generator)
    noise = 0.2 * torch.randn(count, generator=generator)
    return inputs, (inputs[:, 0] + noise > 0).long()


def signs(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray((points[:, 0] > 0).astype(int))


@pytest.fixture(scope="module")
def linear() -> nn.Linear:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-4.0, 0.0], [4.0, 0.0]]))
        model.bias.zero_()
    return model


def test_one_model_in_three_guises(linear: nn.Linear) -> None:
    """A module, a callable of scores and one of labels draw the same noise, and get the same numbers."""
    weight = linear.weight.detach().numpy()
    found = [
        certify_smoothed(model, samples(), **ASK).as_json()["brackets"]
        for model in (linear, lambda points: points @ weight.T, signs)
    ]
    assert found[0] == found[1] == found[2]


def test_an_estimator_with_labels_of_its_own(linear: nn.Linear) -> None:
    inputs, labels = samples()
    named = np.array(["no", "yes"])[labels.numpy()]
    forest = RandomForestClassifier(5, random_state=0).fit(*[part[:120] for part in (inputs.numpy(), named)])
    held_out = (inputs.numpy()[120:], named[120:])
    found = certify_smoothed(forest, held_out, **ASK | {"attack_steps": 2, "clip": 2.0})
    for one in found.curve():
        assert one.error_low is not None
        assert one.error_high is not None
        assert one.loss_high is not None
        assert 0 < one.error_low < one.error_high < 0.8
        assert one.loss_high <= 2


def test_the_model_comes_out_as_it_went_in(linear: nn.Linear) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), linear)
    model.train()
    before = [buffer.clone() for buffer in model.buffers()]
    certify_smoothed(model, samples(80), **ASK | {"attack_steps": 2, "criterion": MissProbability()})
    assert model.training
    assert all(torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_loss_is_in_its_own_units(linear: nn.Linear) -> None:
    """min(ℓ, B) of the miss probability and of twice that: twice the bounds, at the same noise."""

    def doubled(outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * MissProbability()(outputs, targets)

    plain, double = (
        certify_smoothed(linear, samples(), **ASK | {"criterion": criterion, "clip": clip})
        for criterion, clip in ((MissProbability(), 1.0), (doubled, 2.0))
    )
    assert double.bound(0.05, "loss") == pytest.approx(2 * plain.bound(0.05, "loss"), rel=1e-9)
    assert plain.bound(0.05, "loss") <= 1


def test_a_loss_that_counts_errors_is_bounded_as_they_are() -> None:
    """3 for an error and 0 otherwise: three times both sides, at every ρ, though errors are counted."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 3.0 * (outputs.argmax(1) != targets)

    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor([[-4.0, 0.0], [4.0, 0.0]])
    found = certify_smoothed(model, samples(), **ASK | {"criterion": loss, "clip": 3.0, "attack_steps": 2})
    assert 0 < found.lower(0.1, "loss") < found.bound(0.1, "loss") < 3
    for rho in (0.0, 0.01, 0.05, 0.1, 0.3, 2.0):
        assert found.bound(rho, "loss") == pytest.approx(3 * found.bound(rho, "error"), rel=1e-9)
        assert found.lower(rho, "loss") == pytest.approx(3 * found.lower(rho, "error"), rel=1e-9)


def test_more_may_move_at_a_larger_rho_and_at_a_finite_label_cost() -> None:
    plain = certify_smoothed(signs, samples(), **ASK)
    priced = certify_smoothed(signs, samples(), **ASK, label_cost=LabelCost(0.2, 2))
    assert plain.bound(0.01) < plain.bound(0.1) < plain.bound(1.0)
    # Half of the budget at the price of 0.2 turns a quarter of the labels over.
    assert priced.bound(0.1) > plain.bound(0.1)
    assert priced.bound(0.1) >= plain.lower(0) + 0.1 / 0.2 * (1 - 2 * plain.bound(0))


def test_costs_have_noise_of_their_own() -> None:
    """Weights w are squared L2 for inputs that are stretched by √w: the same bounds."""
    inputs, labels = samples()
    stretched = inputs.double() * torch.tensor([2.0, 1.0])
    weighted = certify_smoothed(
        signs, (inputs.double(), labels), **ASK, cost=WeightedL2(torch.tensor([4.0, 1.0]))
    )
    full = certify_smoothed(
        signs, (inputs.double(), labels), **ASK, cost=Mahalanobis(torch.diag(torch.tensor([4.0, 1.0])))
    )
    plain = certify_smoothed(signs, (stretched, labels), **ASK)
    for other in (weighted, full):
        assert other.bound(0.05) == pytest.approx(plain.bound(0.05), rel=1e-6)


def test_frozen_coordinates_get_no_noise() -> None:
    cost = Masked(Mahalanobis(torch.tensor([[2.0, 1.0], [1.0, 2.0]])), torch.tensor([True, False]))
    inputs = torch.zeros(3, 2, dtype=torch.float64)
    batches = list(noisy_batches(inputs, Noise(0.5, cost), copies=4000, seed=0, stream=CERTIFIED))
    points = torch.cat([batch.points for batch in batches])
    assert bool((points[:, 1] == 0).all())
    assert float(points[:, 0].var()) == pytest.approx(0.25 / 2, rel=0.05)


def test_the_noise_has_the_covariance_of_the_cost() -> None:
    matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    inputs = torch.zeros(40, 2, dtype=torch.float64)
    batches = noisy_batches(inputs, Noise(0.5, Mahalanobis(matrix)), copies=1000, seed=0, stream=CERTIFIED)
    points = torch.cat([batch.points for batch in batches])
    assert torch.allclose(points.T.cov(), 0.25 * matrix.inverse(), atol=5e-3)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_coarse_inputs_have_fine_noise(kind: torch.dtype) -> None:
    """Rounded to the inputs' own precision, noise would be other than Gaussian by as much."""
    draws = Noise(0.3, certus.SquaredL2()).draws(torch.zeros(4, dtype=kind), 500, np.random.default_rng(0))
    fine = Noise(0.3, certus.SquaredL2()).draws(torch.zeros(4), 500, np.random.default_rng(0))
    assert torch.equal(draws, fine)


def test_noise_belongs_to_its_sample() -> None:
    """The same whatever comes before it in a batch; different from sample to sample and seed to seed."""
    inputs, noise = torch.zeros(5, 3), Noise(1.0, certus.SquaredL2())

    def drawn(points: Tensor, seed: int = 0) -> Tensor:
        batches = noisy_batches(points, noise, copies=7, seed=seed, stream=CERTIFIED)
        return torch.cat([batch.points for batch in batches]).reshape(len(points), 7, 3)

    assert torch.equal(drawn(inputs)[:2], drawn(inputs[:2]))
    assert len(drawn(inputs).flatten().unique()) == 5 * 7 * 3
    assert not torch.equal(drawn(inputs), drawn(inputs, seed=1))


@pytest.mark.parametrize("rows", [5, 12, 30])
def test_noise_is_the_same_in_smaller_batches(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the copies of one sample do not fit they come in parts, each of which says what it holds."""
    inputs, noise = torch.zeros(3, 2, dtype=torch.float64), Noise(1.0, certus.SquaredL2())

    def drawn() -> Tensor:
        table = torch.full((3, 12, 2), torch.nan, dtype=torch.float64)
        for batch in noisy_batches(inputs, noise, copies=12, seed=3, stream=CERTIFIED):
            part = table[batch.rows, batch.copies]
            assert bool(part.isnan().all())
            part.copy_(batch.points.reshape(part.shape))
        return table

    whole = drawn()
    assert len(whole.unique()) == 3 * 12 * 2
    monkeypatch.setattr("certus.smoothing.sampling._ROWS", rows)
    assert torch.equal(drawn(), whole)


def test_streams_of_noise_and_of_subsets_are_apart() -> None:
    """What chose, what found and what is measured must be independent."""
    assert len({0, 1, CERTIFIED, CALIBRATION, ATTACK, FRESH}) == 6
    assert max(CERTIFIED, CALIBRATION, ATTACK) < FRESH  # and all behind it


def test_no_error_among_n_samples_leaves_room_for_some() -> None:
    """A population that errs with probability p is seen without errors with probability (1 − p)ⁿ. Where that
    is more than δ, no bound that holds with confidence 1 − δ may be below p."""
    inputs, _ = samples()
    data = inputs, torch.zeros(len(inputs), dtype=torch.int64)
    found = certify_smoothed(lambda x: np.zeros(len(x), dtype=int), data, **ASK | {"confidence": 0.9})
    least = 1 - 0.1 ** (1 / found.samples)
    for name in ("error", "vote", "ideal_vote"):
        assert found.lower(0.0) == 0
        assert least <= found.bound(0.0, name) <= 5 * least


def test_errors_at_all_of_n_samples_prove_no_more_than_they_can() -> None:
    """The same from the other side: with probability pⁿ all are errors though only a share p of them is."""
    inputs, _ = samples(80)
    data = inputs, torch.ones(len(inputs), dtype=torch.int64)
    found = certify_smoothed(lambda x: np.zeros(len(x), dtype=int), data, **ASK | {"confidence": 0.999})
    most = 0.001 ** (1 / found.samples)
    for name in ("error", "vote"):
        assert found.bound(0.0, name) == 1
        assert 1 - 5 * (1 - most) <= found.lower(0.0, name) <= most


def test_errors_without_cost_are_attained_at_every_rho() -> None:
    """At ρ = 0 too; and both sides may meet, at 0."""
    found = Quantity("error", 1.0, {2.0: 0.4}, 0.1, (Move(0.0, 0.3), Move(0.5, 0.9)))
    assert found.low(0.0) == pytest.approx(0.3)
    assert found.low(0.25) == pytest.approx(0.5)
    nothing = Quantity("error", 1.0, {2.0: 0.0})
    assert nothing.low(0.0) == nothing.high(0.0) == 0
    made = SmoothedCertificate((0.1,), 0.3, 20, 15, None, 0.9, 100, 10, 0, None, (nothing,), {})
    assert made.bracket(0.1).error_high == pytest.approx(0.2)


def test_a_file_says_the_same(tmp_path: Path) -> None:
    found = certify_smoothed(signs, samples(), **ASK | {"attack_steps": 2})
    found.save(tmp_path / "found.json")
    again = SmoothedCertificate.load(tmp_path / "found.json")
    assert again == found
    text = (tmp_path / "found.json").read_text()
    (tmp_path / "other.json").write_text(text.replace('"draws": 20', '"draws": 21'))
    with pytest.raises(CorruptFileError, match=r"other.json is corrupt"):
        SmoothedCertificate.load(tmp_path / "other.json")
    (tmp_path / "none.json").write_text(json.dumps({"kind": "other"}))
    with pytest.raises(RunError, match="not a certificate by smoothing"):
        SmoothedCertificate.load(tmp_path / "none.json")


def test_attained_above_proven_is_refused() -> None:
    found = certify_smoothed(signs, samples(), **ASK)
    wrong = Quantity("error", 1.0, {1.0: 0.1}, 0.05, (Move(0.01, 0.9),))
    with pytest.raises(ContradictionError, match=r"error is at least 0\.89"):
        SmoothedCertificate(**{**vars(found), "quantities": (wrong,)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 0.0}, "`sigma` must be positive and finite; got 0.0"),
        ({"draws": 0}, "`draws` must be a whole number, at least 1; got 0"),
        ({"draws": 20_000}, "`draws` must be at most 10,000; got 20000"),
        ({"confidence": 1.0}, r"`confidence` must lie in \[0.5, 1\); got 1.0"),
        ({"rho": []}, "`rho` must hold at least one number"),
        ({"rho": -1.0}, "`rho` must be finite and not negative; got -1.0"),
        ({"clip": -1.0}, "`clip` must be positive and finite; got -1.0"),
        ({"clip": 1.0}, "`model` must give one row of scores"),
    ],
)
def test_misuse_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        certify_smoothed(signs, samples(20), **ASK | change)


def test_models_that_answer_otherwise_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"`model` must be a torch.nn.Module, an estimator"):
        certify_smoothed(3, samples(20), **ASK)
    with pytest.raises(ArgumentError, match="one label, or one row of scores, for each of"):
        certify_smoothed(lambda points: np.zeros(3), samples(20), **ASK)
    with pytest.raises(UnsupportedError, match="got SquaredSup"):
        certify_smoothed(signs, samples(20), **ASK, cost=SquaredSup())
    with pytest.raises(ArgumentError, match="`clip` must be given for a regression"):
        certify_smoothed(signs, (samples(20)[0], torch.zeros(20)), **ASK)


class Centred(nn.Linear):
    """Looks at its batch, in eval mode too."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input - input.mean(0))


LOOKING: dict[str, Any] = {
    "a module": Centred(2, 2),
    "the median": lambda points: (points[:, 0] > np.median(points[:, 0])).astype(int),
    "the first": lambda points: (points[:, 0] > points[0, 0]).astype(int),
}


@pytest.mark.parametrize("name", LOOKING)
def test_models_that_look_at_their_batch_are_refused(name: str) -> None:
    """Noisy copies would depend on each other, and nothing would follow."""
    with pytest.raises(UnsupportedError, match="`model` must be deterministic and treat every input"):
        certify_smoothed(LOOKING[name], samples(100), **ASK)
    with pytest.raises(UnsupportedError, match="`model` must be deterministic and treat every input"):
        certus.smoothing.Smoothed(LOOKING[name], sigma=0.5).radius(samples(3)[0])


def test_labels_that_no_target_has_are_errors() -> None:
    predictor = Predictor(lambda inputs: None, None, np.array(["a", "c"]))
    assert predictor.encode(np.array(["a", "b", "c", "z"])).tolist() == [0, -1, 1, -1]


def test_a_label_above_all_that_the_model_knows_is_an_error_everywhere() -> None:
    """Behind all classes in the alphabet: no prediction equals it, so that every sample errs in any noise."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(120, 2))
    words = np.where(rows[:, 0] > 0, "a", "b")
    model = RandomForestClassifier(5, random_state=0).fit(rows, words)
    found = certify_smoothed(model, (rows, np.full(120, "z")), rho=0.01, sigma=0.2, draws=10)
    assert found.bound(0.0) == 1.0
    assert found.lower(0.0) > 0.8


def test_each_sample_is_certified_or_calibrates_and_never_both() -> None:
    """A coordinate without noise names the sample. Each is asked about in as many copies as there are draws,
    and a few more where the model is tried: a sample of both kinds would be asked about twice as often."""
    count, draws = 80, 997
    inputs = torch.stack(
        [torch.randn(count, generator=torch.Generator().manual_seed(0)), torch.arange(count)], 1
    )
    asked: Counter[int] = Counter()

    def model(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        asked.update(points[:, 1].astype(int).tolist())
        return signs(points)

    data = inputs, (inputs[:, 0] > 0).long()
    cost = Masked(certus.SquaredL2(), torch.tensor([True, False]))
    found = certify_smoothed(model, data, **ASK | {"draws": draws, "cost": cost})
    assert found.calibrated == count // 8
    assert found.samples == count - count // 8
    assert sorted(asked) == list(range(count))
    assert draws <= min(asked.values()) <= max(asked.values()) < 1.5 * draws


@pytest.mark.parametrize("kind", ["module", "callable"])
def test_units_of_the_inputs_do_not_matter(kind: str) -> None:
    """Inputs and σ times s and ρ times s² are the same question, and get the same answer on both sides. For
    each sample the nearest one of another label misleads the search at first."""
    base, labels = samples(200, seed=1)
    others, other_labels = base + torch.tensor([0.0, 1e-2]), 1 - labels
    weight = torch.tensor([[-4.0, 0.0], [4.0, 0.0]])

    def answer(scale: float) -> tuple[float, ...]:
        model: Any = signs
        if kind == "module":
            model = nn.Linear(2, 2, bias=False)
            model.weight.data = weight / scale
        found = certify_smoothed(
            model,
            (scale * base, labels),
            calibration=(scale * others, other_labels),
            rho=0.09 * scale**2,
            sigma=0.3 * scale,
            draws=20,
            votes=15,
            abstain=None,
            attack_steps=6,
        )
        rho = 0.09 * scale**2
        sides = [found.lower(0.0, "vote"), found.lower(rho, "vote"), found.bound(rho, "vote")]
        return (*sides, found.lower(rho), found.bound(rho))

    plain = answer(1.0)
    assert plain[1] > plain[0] + 0.05  # the search found something
    for scale in (2.0**-8, 2.0**8):
        assert answer(scale) == pytest.approx(plain, rel=1e-6)
