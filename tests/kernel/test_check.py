"""Stored certificates: what the kernel proves from their files, and what no forger can make it say."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

import certus
from certus.certificates import Certificate
from certus.certificates.files import as_json, certificate_files
from certus.certificates.linear import certify_linear
from certus.costs import LabelCost, Mahalanobis, Masked, SquaredL2, SquaredSup
from certus.data import Samples
from certus.domains import Box
from certus.errors import ArgumentError, CertusError, UnsupportedError, VerificationError
from certus.kernel import check as kernel_check
from certus.kernel.__main__ import main
from certus.kernel.check import FILES, ROWS, Checked, check, digest_rows
from certus.kernel.evidence import Evidence
from certus.kernel.graph_files import build_problem, parse_object, parse_tensors
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem
from certus.losses import SquaredError
from certus.storage.files import CorruptFileError
from certus.storage.write import add_checksum
from tests.certificates.problems import network, samples

RHOS, EPSILONS = (0.01, 0.2), (0.05, 0.4)
NAME = "certificate.json"


class Size(NamedTuple):
    """How much is certified: rows, and options of ``certify``."""

    rows: int
    options: dict[str, Any]

    def certify(self, model: nn.Module, data: Any = None, **options: Any) -> Certificate:
        quick: dict[str, Any] = {"rho": RHOS, "attack_steps": 2, "local_radii": 2}
        data = samples(1, self.rows) if data is None else data
        certificate = certus.certify(model, data, progress=False, **(quick | self.options | options))
        assert isinstance(certificate, Certificate)
        return certificate


QUICK, WHOLE = Size(6, {"gammas": (0.3, 1.0, 3.0), "gamma_rounds": 0}), Size(12, {"gamma_rounds": 1})


def _images(size: Size) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ELU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(12, 3)).double()
    return model, (torch.rand(size.rows, 1, 8, 8).double(), torch.arange(size.rows) % 3)


def _regression(size: Size) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    return model, (samples(1, size.rows)[0], torch.randn(size.rows, 1).double())


def _weighted(size: Size) -> Samples:
    return Samples(*samples(1, size.rows), weights=torch.linspace(0.2, 2, size.rows).double())


MASK = torch.tensor([True, False])
MATRIX = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
CERTIFICATES: dict[str, Callable[[Size], Certificate | None]] = {
    "dense": lambda size: size.certify(network("tanh", 1), epsilon=EPSILONS),
    "kinked": lambda size: size.certify(network("relu", 2), clip=1.5),
    "shaped": lambda size: size.certify(network("logcosh", 2)),
    "convolutional": lambda size: size.certify(*_images(size), domain=Box(0, 1)),
    "residual": lambda size: size.certify(network("residual", 1)),
    "linear": lambda size: certify_linear(
        network("linear", 1, 2), samples(1, size.rows, 2), rho=RHOS, epsilon=0.1
    ),
    "weighted": lambda size: size.certify(network("tanh", 1), _weighted(size)),
    "masked": lambda size: size.certify(network("tanh", 1), cost=Masked(SquaredL2(), MASK)),
    "matrix": lambda size: size.certify(network("tanh", 1), cost=Mahalanobis(MATRIX)),
    "sup": lambda size: size.certify(network("tanh", 1), cost=SquaredSup()),
    "label cost": lambda size: size.certify(
        network("tanh", 1), label_cost=LabelCost(0.5, 3), class_weights=[1.0, 2.0, 0.5]
    ),
    "population": lambda size: size.certify(
        network("tanh", 1), samples(1, 4 * size.rows), epsilon=EPSILONS, confidence=0.8
    ),
    "predicted": lambda size: size.certify(network("tanh", 1), (samples(1, size.rows)[0], None)),
    "regression": lambda size: size.certify(
        *_regression(size), criterion=SquaredError(), clip=4.0, confidence=0.8
    ),
}


def _stored(kind: str, most: int | None = 1) -> tuple[Certificate, dict[str, bytes]]:
    """A certificate, of whole size for all cases, and the content of its files by name, rows included."""
    return _certified(kind, whole=most is None)


@cache
def _certified(kind: str, *, whole: bool) -> tuple[Certificate, dict[str, bytes]]:
    certificate = CERTIFICATES[kind](WHOLE if whole else QUICK)
    assert certificate is not None
    return certificate, certificate_files(certificate, NAME, include_data=True)


def before_forks() -> None:
    """Make what many tests share, before ``tools.mutation`` forks."""
    for kind in KINDS:
        if not kind.marks:
            _stored(str(kind.values[0]))


def _write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / NAME


def _sealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files as a careful forger leaves them: with new digests and a new checksum."""
    content = json.loads(files[NAME])
    if isinstance(content.get("check"), dict) and "files" in content["check"]:
        content["check"]["files"] = {name: hashlib.sha256(files[name]).hexdigest() for name in FILES}
    with contextlib.suppress(ValueError):  # NaN has none
        content = add_checksum(content)
    return files | {NAME: json.dumps(content).encode()}


def _judged(path: Path) -> Checked | None:
    """What the kernel makes of files; None if it refuses them, or if a number does not follow."""
    try:
        checked = check(path)
    except Refused:
        return None
    return checked if checked.verified else None


KINDS = [
    pytest.param(
        kind, marks=pytest.mark.soak if kind in ("kinked", "residual", "linear", "masked", "sup") else ()
    )
    for kind in CERTIFICATES
]


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_certified_is_proven_again(kind: str, tmp_path: Path) -> None:
    """By the numbers of the certificate itself, which searches found: no search is needed to check them."""
    certificate, files = _stored(kind)
    path = _write(tmp_path, files)
    checked = check(path)
    assert checked.verified
    assert checked.statement.evidence is Evidence.PROVEN
    for rho in certificate.rhos:
        assert checked.statement.loss(rho)[0] == pytest.approx(certificate.bound(rho), rel=1e-9)
    read = Certificate.load(path)
    assert read.evidence is Evidence.STATED
    verified = read.verify()
    assert verified.evidence is certificate.evidence is Evidence.PROVEN
    for bracket, fresh in zip(verified.curve(), certificate.curve(), strict=True):
        for side in ("error_high", "population_loss", "population_error"):
            again, first = (
                math.nan if value is None else value
                for value in (getattr(bracket, side), getattr(fresh, side))
            )
            assert again == pytest.approx(first, rel=1e-9, nan_ok=True)
    assert [each.certified for each in verified.accuracies()] == [
        each.certified for each in certificate.accuracies()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_witnesses_are_short_and_few(kind: str) -> None:
    """A number of rows and masks apart, no γ has more numbers than the inputs, nor a margin."""
    _, files = _stored(kind)
    inputs, gammas = load(files[ROWS])["inputs"], json.loads(files[NAME])["check"]["gammas"]
    for name, tensor in load(files[FILES[2]]).items():
        if name.endswith(("units", "roots", "scale")):
            assert tensor.dtype == torch.float32
        if name.endswith("moves"):
            assert tensor.dtype == torch.int16
        if name.endswith(".moves") and not name.startswith("tangent"):
            assert tensor.numel() <= inputs.numel()
    assert len(gammas) <= len(RHOS) * (2 if _stored(kind)[0].population is not None else 1)


def _leaves(entry: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all values of a JSON document."""
    parts = entry.items() if isinstance(entry, dict) else enumerate(entry) if isinstance(entry, list) else ()
    for name, part in parts:
        yield from _leaves(part, (*place, name))
    if not isinstance(entry, dict | list):
        yield place


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def _changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    document = copy.deepcopy(document)
    _at(document, place[:-1])[place[-1]] = value
    return document


def _others(value: Any) -> list[Any]:
    """Values that a forger may write in place of one: slightly and wildly other ones, and other types."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value * 0.999, value * 1.001, value / 2, 2 * value + 1, 0, -value - 1, 1e300, None, math.nan]
    if value is None:
        return [0.0, 1.0]
    return ["", "forged", None]


def _claims_hold(content: dict[str, Any], fresh: Certificate, *, same: bool) -> None:
    """Every number that a file calls an upper side, or a certified share, is one by the first certificate,
    as long as the file is about the ``same`` problem, and never below what that attains."""
    low, slack = fresh.lower, 1 + 3e-9
    for line in content["brackets"]:
        rho, high = line["rho"], line["loss_high"]
        assert high is None or not same or high * slack >= low(rho)
        assert high is None or not same or high * slack >= fresh.bound(rho)
        if fresh.error_bound(rho) is not None and same:
            assert line["error_high"] is None or line["error_high"] * slack >= fresh.error_bound(rho)
        upper = fresh.statement.population
        if upper is not None and same and content["population"]["confidence"] >= upper.confidence:
            loss = line["population_loss"]
            assert loss is None or loss * slack >= fresh.statement.population_loss(rho)
    for line in content["accuracies"]:
        certified = line["certified"] or 0.0
        assert not same or certified <= fresh.certified_accuracy(line["epsilon"])
    for line in content.get("rates", ()) if same and fresh.population is None else ():
        _rate_holds(line, fresh, slack)
    costs, own = content["proven_error_cost"], fresh.proven_error_cost
    if own is not None and same:
        for stated, proven in zip(costs, own.tolist(), strict=True):
            assert (math.inf if stated is None else stated) <= proven * slack


def _rate_holds(line: dict[str, Any], fresh: Certificate, slack: float) -> None:
    name, rho, label = line["name"], line["rho"], line["label"] or 0
    if name == "recall":
        assert (line["low"] or 0.0) <= fresh.recall(label, rho).low * slack + 1e-12
    elif line["high"] is not None:
        fpr = name == "fpr"
        own = fresh.false_positive_rate(label, rho) if fpr else fresh.balanced_error(rho)
        assert line["high"] * slack + 1e-12 >= own.high


PROBLEM = ("clip", "class_weights", "weights")
"""Entries of certificate.json that say what it is about, beside the graph and the rows."""


def _share(cases: list[Any], most: int | None) -> list[Any]:
    """All cases, or as many drawn from them by a fixed seed."""
    return cases if most is None else random.Random(0).sample(cases, min(most, len(cases)))


FULL = pytest.param(None, marks=pytest.mark.soak, id="all")


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of samples from the same files and the same entries are computed once."""
    computed, plain = dict[str, Any](), kernel_check._bounded

    def bounded(problem: Problem, stored: dict[str, Tensor], *entries: Any) -> Any:
        key = json.dumps(entries)
        computed[key] = computed.get(key) or plain(problem, stored, *entries)
        return computed[key]

    monkeypatch.setattr(kernel_check, "_bounded", bounded)


@pytest.mark.quick_share(3)
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("most", [4, FULL])
@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        pytest.param("linear", marks=pytest.mark.soak),
        "weighted",
        "label cost",
        "population",
        "regression",
    ],
)
def test_no_forged_number_of_a_certificate_is_proven(kind: str, most: int | None, tmp_path: Path) -> None:
    """Every entry is changed, one at a time. Either the kernel does not verify the file, or everything that
    it calls proven is true: of the same problem by the first certificate, of another by attacks."""
    fresh, files = _stored(kind, most and 1)
    content = json.loads(files[NAME])
    stated = {name: entry for name, entry in content.items() if name not in ("about", "sha256")}
    cases = [(place, other) for place in _leaves(stated) for other in _others(_at(content, place))]
    accepted = 0
    for place, other in _share(cases, most):
        forged = _changed(content, place, other)
        path = _write(tmp_path, _sealed(files | {NAME: json.dumps(forged).encode()}))
        checked = _judged(path)
        if checked is None:
            continue
        accepted += 1
        _claims_hold(forged, fresh, same=place[0] not in PROBLEM)
        for rho in fresh.rhos if place[0] not in PROBLEM else ():
            assert checked.statement.loss(rho)[0] >= fresh.lower(rho)
        if place[0] not in PROBLEM:
            _not_shown_as_proven(path, fresh, same=place[:2] != ("check", "gammas"))
    assert accepted > 0  # of numbers that became weaker, or are not proven


def _not_shown_as_proven(path: Path, fresh: Certificate, *, same: bool) -> None:
    """What is loaded and verified has the upper sides of the first certificate, whatever the file states. At
    other γ than the ``same`` they may be better, as every γ proves a bound; never below what is attained."""
    try:
        read = Certificate.load(path)
        verified = read.verify()
    except CertusError:
        return
    assert read.evidence is Evidence.STATED
    assert verified.lower_evidence is Evidence.STATED
    for rho in fresh.rhos:
        assert not same or verified.bound(rho) >= fresh.bound(rho) * (1 - 1e-9)
        assert verified.bound(rho) >= fresh.lower(rho)


def _attained(problem: Problem, rho: float, weights: Tensor | None, by_class: list[float] | None) -> float:
    """The mean loss of the rows moved by random moves of cost ρ each, the largest of some."""
    generator, best = torch.Generator().manual_seed(0), -math.inf
    factor = torch.ones(len(problem)) if by_class is None else torch.tensor(by_class)[problem.targets]
    factor = factor.double() if weights is None else factor * weights
    for _ in range(30):
        move = torch.randn(problem.inputs.shape, dtype=torch.float64, generator=generator)
        move = problem.cost.freed(move)
        cost = problem.cost.value(problem.inputs + move, problem.inputs)
        scale = (rho / cost).sqrt().nan_to_num(0.0, 0.0).reshape(-1, *[1] * (move.dim() - 1))
        points = (problem.inputs + move * scale).clamp(problem.domain.lower, problem.domain.upper)
        near = problem.cost.value(points, problem.inputs) <= rho * (1 + 1e-12)
        points = torch.where(near.reshape(scale.shape), points, problem.inputs)
        best = max(best, float((problem.losses(points) * factor).mean()))
    return best


@pytest.mark.parametrize("most", [3, FULL])
@pytest.mark.parametrize(
    "kind",
    ["dense", "shaped", "convolutional", "matrix", "label cost"]
    + [pytest.param(kind, marks=pytest.mark.soak) for kind in ("masked", "linear")],
)
def test_no_forged_tensor_proves_too_much(kind: str, most: int | None, tmp_path: Path) -> None:
    """Every tensor of every file has its first number changed in several ways. A forged witness, norm or
    proposal never leads below what the first certificate attains; a forged network, cost or row is another
    problem, whose bounds no random move exceeds."""
    fresh, files = _stored(kind, most and 1)
    stored = {file: load(files[file]) for file in (*FILES[1:], ROWS)}
    cases = [
        (file, name, other)
        for file, tensors in stored.items()
        for name, tensor in tensors.items()
        for other in _other_tensors(tensor)
    ]
    for file, name, other in _share(cases, most):
        forged = files | {file: save(stored[file] | {name: other})}
        if file == ROWS:
            text = json.loads(files[NAME])
            with contextlib.suppress(Refused):  # of other types
                rows = parse_tensors(forged[ROWS])
                text["check"]["rows"] = digest_rows(rows["inputs"], rows["targets"])
            forged[NAME] = json.dumps(text).encode()
        _judge_problem(forged, tmp_path, fresh if file == FILES[2] else None)


@pytest.mark.parametrize("most", [3, FULL])
@pytest.mark.parametrize("kind", ["dense", "matrix", "label cost", "convolutional"])
def test_no_forged_description_proves_too_much(kind: str, most: int | None, tmp_path: Path) -> None:
    """The same for every entry of graph.json."""
    _, files = _stored(kind, most and 1)
    description = json.loads(files[FILES[0]])
    cases = [(place, other) for place in _leaves(description) for other in _others(_at(description, place))]
    for place, other in _share(cases, most):
        forged = json.dumps(_changed(description, place, other)).encode()
        _judge_problem(files | {FILES[0]: forged}, tmp_path, None)


def _other_tensors(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.numel() == 0:
        return
    first = tensor.flatten()[0].item()
    changes = [not first] if tensor.dtype == torch.bool else [0, 1, -1, 7, 2 * first, -3 * first - 1]
    if tensor.is_floating_point():
        changes += [math.nan, math.inf, 1e-30, 1e30, first * 0.999]
    if tensor.dtype == torch.int16:
        changes = [change for change in changes if abs(change) < 2**15] + [2**15 - 1, -(2**15)]
    for change in changes:
        other = tensor.clone()
        other.view(-1)[0] = change
        yield other
    yield tensor[:-1].clone() if tensor.dim() else tensor + 1
    yield tensor.to(torch.float16) if tensor.is_floating_point() else tensor.to(torch.int32)
    if tensor.is_floating_point():
        yield tensor * 0.5
        yield tensor * -2


def _judge_problem(files: dict[str, bytes], folder: Path, fresh: Certificate | None) -> None:
    path = _write(folder, _sealed(files))
    try:
        checked = check(path)
    except Refused:
        return
    content = json.loads(files[NAME])
    if fresh is None:
        rows = parse_tensors(files[ROWS])
        tensors, description = parse_tensors(files[FILES[1]]), parse_object(files[FILES[0]])
        problem = build_problem(description, tensors, (rows["inputs"], rows["targets"]))
        weights = None if content.get("weights") is None else torch.tensor(content["weights"])
        for rho in content["rhos"]:
            attained = _attained(problem, rho, weights, content.get("class_weights"))
            assert checked.statement.loss(rho)[0] >= attained * (1 - 1e-9) - 1e-12
    else:
        for rho in content["rhos"]:
            assert checked.statement.loss(rho)[0] >= fresh.lower(rho)
            error = fresh.error_lower(rho)
            assert error is None or checked.statement.error(rho, 0.0) >= error


def test_an_upper_side_below_the_proven_one_is_not_verified(tmp_path: Path) -> None:
    _, files = _stored("dense")
    content = json.loads(files[NAME])
    content["brackets"][0]["loss_high"] *= 1 - 1e-6
    path = _write(tmp_path, _sealed(files | {NAME: json.dumps(content).encode()}))
    assert not check(path).verified
    content = json.loads(files[NAME])
    content["brackets"][0]["loss_high"] *= 1 + 1e-6
    assert check(_write(tmp_path, _sealed(files | {NAME: json.dumps(content).encode()}))).verified


def test_rows_are_those_of_the_certificate(tmp_path: Path) -> None:
    certificate, files = _stored("dense")
    path, rows = _write(tmp_path, files), parse_tensors(files[ROWS])
    (tmp_path / ROWS).unlink()
    with pytest.raises(Refused, match="not re-checked: the rows are not included"):
        check(path)
    assert check(path, rows).verified
    (tmp_path / "mine.safetensors").write_bytes(files[ROWS])
    assert check(path, tmp_path / "mine.safetensors").verified
    others = [
        rows | {"inputs": rows["inputs"] + 1e-9},
        rows | {"targets": rows["targets"].roll(1)},
        {name: tensor[:-1] for name, tensor in rows.items()},
    ]
    for other in others:
        with pytest.raises(Refused, match="not those of the certificate"):
            check(path, other)
    read = Certificate.load(path)
    with pytest.raises(UnsupportedError, match="not re-checked"):
        read.verify()
    with pytest.raises(UnsupportedError, match="not those of the certificate"):
        read.verify((rows["inputs"] * 2, rows["targets"]))
    assert read.verify((rows["inputs"], rows["targets"])).evidence is certificate.evidence


@pytest.mark.parametrize("kind", ["weighted", "predicted", "regression"])
def test_rows_are_taken_from_data(kind: str, tmp_path: Path) -> None:
    certificate, files = _stored(kind)
    path, rows = _write(tmp_path, files), parse_tensors(files[ROWS])
    (tmp_path / ROWS).unlink()
    targets = None if kind == "predicted" else rows["targets"]
    data: Any = (rows["inputs"], targets) if kind != "weighted" else _weighted(QUICK)
    assert Certificate.load(path).verify(data).evidence is certificate.evidence
    if kind == "weighted":
        with pytest.raises(CertusError, match="weights"):
            Certificate.load(path).verify(Samples(data.inputs, data.targets, data.weights.flip(0)))


def _hostile() -> dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]]:
    """Files that nobody wrote by accident; digests fit."""

    def text(name: str, content: bytes) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
        return lambda files: files | {name: content}

    def header(entries: Any, numbers: bytes = b"") -> bytes:
        code = json.dumps(entries).encode()
        return len(code).to_bytes(8, "little") + code + numbers

    tensor = {"dtype": "F64", "shape": [1 << 35], "data_offsets": [0, 8]}
    return {
        "no json": text(NAME, b"{"),
        "a list": text(NAME, b"[]"),
        "nothing": text(NAME, b"{}"),
        "twice": text(NAME, b'{"check": {}, "check": {}}'),
        "deep": text(NAME, b"[" * 100_000),
        "bytes": text(NAME, b"\xff\xfe"),
        "check is a list": text(NAME, b'{"check": [], "brackets": []}'),
        "huge integer": lambda files: (
            files | {NAME: files[NAME].replace(b'"samples": 6', b'"samples": 1' + b"0" * 400)}
        ),
        "graph is a list": text(FILES[0], b"[]"),
        "graph is deep": text(FILES[0], b'{"graph":' * 50_000),
        "no tensors": text(FILES[1], b""),
        "short": text(FILES[2], b"\x01"),
        "long header": text(FILES[2], (1 << 60).to_bytes(8, "little") + b"{}"),
        "huge tensor": text(FILES[2], header({"edges": tensor}, b"\0" * 8)),
        "a path": text(FILES[2], header({"../../etc/passwd": tensor | {"shape": [1]}}, b"\0" * 8)),
        "no witnesses": text(FILES[2], header({})),
        "half floats": text(FILES[2], header({"edges": tensor | {"dtype": "F16"}}, b"\0" * 8)),
    }


@pytest.mark.parametrize("name", _hostile())
def test_hostile_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    _, files = _stored("dense")
    files = _hostile()[name](files)
    with contextlib.suppress(ValueError, AttributeError, RecursionError, TypeError):
        files = _sealed(files)  # what is no JSON has no digests
    path = _write(tmp_path, files)
    with pytest.raises(Refused) as refusal:
        check(path)
    assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(CertusError):
        Certificate.load(path).verify()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command ``python -m certus.kernel``: its exit code, and what it prints."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["certus.kernel", *map(str, words)])
        code = main()
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_the_command_says_what_it_rests_on(kernel: Callable[..., Any], tmp_path: Path) -> None:
    """0: every number follows; 1: one does not; 2: nothing was checked."""
    _, files = _stored("population")
    path = _write(tmp_path, files)
    code, out, err = kernel(tmp_path)
    assert (code, err) == (0, "")
    assert all(
        words in out
        for words in (
            ": proven.",
            "Assumed: the rows are independent draws",
            "confidence 0.8",
            "not re-checked",
        )
    )
    shutil.move(tmp_path / ROWS, tmp_path / "mine.safetensors")
    code, out, err = kernel(path)
    assert (code, out) == (2, "")
    assert "not re-checked" in err
    assert kernel(path, "--data", tmp_path / "mine.safetensors")[0] == 0
    content = json.loads(files[NAME])
    content["brackets"][0]["loss_high"] /= 2
    code, out, _ = kernel(_write(tmp_path / "forged", _sealed(files | {NAME: json.dumps(content).encode()})))
    assert code == 1
    assert "does not follow" in out
    code, out, err = kernel(tmp_path / "absent.json")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_the_kernel_alone_checks_files(tmp_path: Path) -> None:
    """In a process of its own, which imports nothing else of certus but the names of the package."""
    path = _write(tmp_path, _stored("dense")[1])
    code = (
        "import sys, pathlib, certus.kernel.check as kernel\n"
        f"assert kernel.check(pathlib.Path({str(path)!r})).verified\n"
        "print(*(name for name in sys.modules if name.startswith('certus')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {name for name in done.stdout.split() if not name.startswith("certus.kernel")}
    assert others <= {"certus", "certus._names", "certus._lazy"}, others


def test_a_claim_of_the_user_is_not_stored(tmp_path: Path) -> None:
    """A certificate that rests on code of the user's says why it cannot be checked."""
    from certus.costs import Bregman

    def square(points: Tensor) -> Tensor:
        return points.square().flatten(1).sum(1)

    cost = Bregman(square, modulus=2.0)
    certificate = QUICK.certify(network("tanh", 1), cost=cost)
    certificate.save(tmp_path / NAME)
    assert sorted(file.name for file in tmp_path.iterdir()) == [NAME]
    with pytest.raises(Refused, match="not re-checked"):
        check(tmp_path)


def test_a_second_certificate_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    first, _ = _stored("dense")
    first.save(tmp_path / "a.json", include_data=True)
    names = {"a.json", *(f"a.{name}" for name in (*FILES, ROWS))}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert check(tmp_path / "a.json").verified
    Certificate.load(tmp_path / "a.json").save(tmp_path / "b.json")
    assert check(tmp_path / "b.json").verified
    first.save(tmp_path / "a.json")
    assert not (tmp_path / f"a.{ROWS}").exists()
    with pytest.raises(ArgumentError):
        Certificate.load(tmp_path / "a.json").worst_case_data(0.1)


def test_a_negative_cost_is_refused(tmp_path: Path) -> None:
    """Of an attack, which the kernel does not read."""
    _, files = _stored("dense")
    content = json.loads(files[NAME])
    content["attacks"][0]["transport_cost"] = -1.0
    path = _write(tmp_path, _sealed(files | {NAME: json.dumps(content).encode()}))
    with pytest.raises(CorruptFileError, match="is corrupt"):
        Certificate.load(path)


def test_a_number_that_does_not_follow_is_named(tmp_path: Path) -> None:
    """Of files that are consistent in themselves: everything is derived from one forged mean."""
    _, files = _stored("dense")
    path = _write(tmp_path, files)
    read = Certificate.load(path)
    object.__setattr__(
        read.statement, "means", {gamma: (1 - 1e-6) * mean for gamma, mean in read.statement.means.items()}
    )
    forged = as_json(read) | {"check": json.loads(files[NAME])["check"]}
    path.write_text(json.dumps(add_checksum(forged | {"evidence": "proven"})))
    with pytest.raises(VerificationError, match=r"is stated, .* is proven"):
        Certificate.load(path).verify()
