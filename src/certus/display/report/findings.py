"""Contents of a report: files of a run, and measurements on held-out samples.

What a run was made from, and the commands that make it again.

The commands that make a run and its certificate again.

The features of a table that matter most, each moved alone, as ``certus features`` moves them.

Samples of a table before and after T_γ, and the features that the worst case moves most.

Images as pictures inside a page: PNG without any library, in a data: address.

Samples before and after T_γ: images as pictures, rows as the features that moved.

All that a report tells of one run: what its files hold, and what is measured now on held-out samples.

What a run has no data for is None, and its section is then absent.
"""

from __future__ import annotations

import base64
import copy
import math
import shlex
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from certus._eval_mode import loss_eval_mode
from certus._format import at_least, at_most
from certus.attacks.evaluation import Evaluation, Trial, sweep, typical_length
from certus.attacks.minimum_norm import minimum_norm_attack
from certus.bounds import SmoothnessBound, input_smoothness
from certus.certificates.certificate import Certificate
from certus.certificates.files import read_certificate
from certus.certificates.lower_bounds import real_transport
from certus.costs import Cost
from certus.data import Samples, Subset
from certus.display.report.html import commands, escaped, facts, html_table
from certus.errors import UnsupportedError
from certus.inner.concavity import ConcaveShare, concave_share
from certus.losses import inferred_criterion, loss_and_slope, predicted
from certus.runs.certification import CertifySettings
from certus.runs.directory import CERTIFICATE_FOLDER, OWN_LABELS_FOLDER
from certus.runs.factory import Feature, features_of
from certus.runs.loaded_run import LoadedRun
from certus.runs.sensitivity import FeatureSensitivity, move_feature, spread_cost
from certus.runs.settings import FLAGS, Settings
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.files import RunError, convert
from certus.storage.tensors import digest


def run_facts(found: Findings) -> str:
    """Data, seed and versions; the commands, as they were asked."""
    data, settings, record = found.trained.data, found.trained.settings, found.trained.run.record
    kinds = {"to train": data.train, "to calibrate": data.calibration, "to test": data.test}
    parts = ", ".join(f"{len(part)} {name}" for name, part in kinds.items())
    entries: dict[str, object] = {
        "data": f"{data.name} ({parts})",
        "sha256 of the data": data.sha256 or "–",
        "distances in": data.units,
        "seed": settings.seed,
        "trained with": f"certus {record.certus_version}, torch {record.torch_version}",
    }
    lines = [train_command(settings, found.name, imported=record.origin == "imported")]
    if found.certificate is not None:
        lines.append(certify_command(found.certificate.about["settings"], found.name))
    if found.stability is not None:
        lines.append(certify_command(found.stability.about["settings"], found.name))
    if found.certificate is not None:
        entries["certificate of"] = found.certificate.about["rows"]["words"]
        versions = found.certificate.about
        entries["certified with"] = f"certus {versions['certus_version']}, code {versions['code_digest']}"
    return facts(entries) + commands(lines)


def train_command(settings: Settings, path: str, *, imported: bool) -> str:
    """``certus train …`` with all that is not a default."""
    if imported:
        given = ["certus", "import", "--weights", "WEIGHTS", "--data", settings.data]
        return shlex.join(
            [*given, "--model", settings.model, *_flags(settings, {"method", "folder"}), "-o", path]
        )
    words = ["certus", "train", settings.data, "--model", settings.model]
    return shlex.join([*words, *_flags(settings, {"folder"}), "-o", path])


def certify_command(asked: dict[str, Any], path: str) -> str:
    """``certus certify …`` from the settings in a certificate."""
    return shlex.join(["certus", "certify", path, *_flags(convert(asked, CertifySettings), set())])


def _flags(settings: Settings | CertifySettings, left_out: set[str]) -> list[str]:
    words: list[str] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.default is MISSING or value == field.default or field.name in left_out:
            continue
        name = {"gammas": "gamma"}.get(field.name, field.name)
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag, str(one)]
    return words


SHARE = 0.1
"""How far a feature moves: this share of its standard deviation, in root mean square."""

MOST_FEATURES = 12


def steepest_features(trained: LoadedRun, rows: Samples) -> list[Feature]:
    """Those along which the loss rises most, by first order; none of what is no table."""
    data = trained.data
    if not data.feature_names or rows.inputs.dim() != 2:
        return []
    with loss_eval_mode(trained.loss):
        _, slopes = loss_and_slope(trained.loss, rows.inputs.detach().requires_grad_(), rows.targets)
    spread = rows.inputs.double().std(0, correction=0)
    rise = slopes.double().abs().mean(0) * spread
    ranked = sorted(features_of(data), key=lambda one: -float(rise[list(one.columns)].sum()))
    varied = [one for one in ranked if spread_cost(data, rows, one, SHARE) > 0]
    return varied[:MOST_FEATURES]


def fragile_features(
    trained: LoadedRun, rows: Samples, told: Callable[[int], None]
) -> list[FeatureSensitivity]:
    """The brackets where one feature moves and nothing else, from the most fragile on."""
    found = []
    for feature in steepest_features(trained, trained.data.test):
        rho = spread_cost(trained.data, rows, feature, SHARE)
        if rho > 0:  # it varies in these rows, too
            found.append(move_feature(trained, rows, feature, rho))
        told(len(rows))
    return sorted(found, key=lambda one: one.rank, reverse=True)


def fragile_rows(found: Sequence[FeatureSensitivity]) -> tuple[list[str], list[list[str]]]:
    """The table: head and cells."""
    labelled = any(one.bracket.error_low is not None for one in found)
    head = ["feature", *(("error at least", "at most") if labelled else ()), "loss at least", "at most"]
    rows = []
    for one in found:
        bracket, proven = one.bracket, math.isfinite(one.bracket.loss_high)
        cells = [one.feature.name]
        if labelled:
            low, high = bracket.error_low or 0.0, bracket.error_high
            cells += [at_least(low), "no proof" if high is None else at_most(high)]
        cells += [at_least(bracket.loss_low), at_most(bracket.loss_high) if proven else "no proof"]
        rows.append(cells)
    return head, rows


_FEATURES, _CELLS = 12, 4


def moved_features(found: Findings) -> list[tuple[str, float]] | None:
    """Feature and its mean absolute move, from the largest on; None of what is no table."""
    names, worst = found.trained.data.feature_names, found.worst
    if worst is None or not names or worst.before.dim() != 2:
        return None
    moves = (worst.after - worst.before).abs().double().mean(0)
    # A changed category moves two of its inputs by 1; the season of a date goes with its day.
    sizes = {
        one.name: float(moves[list(one.columns)].sum()) / 2 if one.category else float(moves[one.columns[0]])
        for one in features_of(found.trained.data)
    }
    order = sorted(sizes, key=lambda name: -sizes[name])[:_FEATURES]
    return [(name, sizes[name]) for name in order if sizes[name] > 0] or None


def moved_rows(found: Findings, count: int) -> list[tuple[str, str, str]]:
    """Of some samples: the label, what the model says before and after, and the features that moved most."""
    worst, data = found.worst, found.trained.data
    if worst is None or not data.feature_names or worst.before.dim() != 2:
        return []
    rows = []
    for place in most_moved(worst, count):
        moves = (worst.after[place].double() - worst.before[place].double()).abs()
        ranked = sorted(features_of(data), key=lambda one: -float(moves[list(one.columns)].max()))
        cells = []
        for one in ranked[:_CELLS]:
            if bool((moves[list(one.columns)] != 0).any()):
                before, after = (_cell(found, side[place], one) for side in (worst.before, worst.after))
                cells.append(f"{one.name} {before} → {after}")
        rows.append((label_words(found, worst.targets[place]), said_words(found, place), "; ".join(cells)))
    return rows


def most_moved(worst: Worst, count: int) -> list[int]:
    """The samples whose answer changes first, then those that move farthest."""
    length = (worst.after - worst.before).flatten(1).double().norm(dim=1)
    changed = (worst.said[0] != worst.said[1]).double() if not worst.said[0].is_floating_point() else 0.0
    order = torch.argsort(length + changed * (float(length.max()) + 1), descending=True)
    return [int(place) for place in order[:count]]


def label_words(found: Findings, target: torch.Tensor) -> str:
    """A label by its name, or the value of a regression."""
    data = found.trained.data
    if data.classes is None:
        mean, scale = data.target_scale or (0.0, 1.0)
        return f"{float(target) * scale + mean:.4g}"
    label = int(target)
    return data.class_names[label] if data.class_names and label < len(data.class_names) else str(label)


def said_words(found: Findings, place: int) -> str:
    """What the model says before and after."""
    assert found.worst is not None
    before, after = (label_words(found, side[place]) for side in found.worst.said)
    return f"{before} → {after}"


def _cell(found: Findings, row: torch.Tensor, feature: Feature) -> str:
    """What the table has there: a number in the units of the source, or the name of a category."""
    data, first = found.trained.data, feature.columns[0]
    if feature.category:
        hot = [place for place in feature.columns if row[place] == 1]
        assert data.feature_names is not None
        return data.feature_names[hot[0]].removeprefix(f"{feature.name}=") if hot else "unknown"
    mean = 0.0 if data.input_scale is None else float(data.input_scale[0][first])
    return f"{float(row[first]) * feature.scale + mean:.4g}"


def png(image: Tensor) -> bytes:
    """A (channels, height, width) image with values in [0, 1], grey or in colours, as a PNG file.

    >>> import torch
    >>> png(torch.zeros(1, 2, 2))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    colours = image.shape[0] == 3
    pixels = image if colours else image[:1]
    levels = (pixels.detach().double().clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
    height, width = int(levels.shape[0]), int(levels.shape[1])
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colours else 0, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows, 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_address(image: Tensor) -> str:
    """What the src of an <img> may be."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


_SHOWN = 6


def moved_images(found: Findings) -> str:
    """Pairs of pictures; nothing of what is no image."""
    worst = found.worst
    if worst is None or worst.before.dim() != 4 or worst.before.shape[1] not in (1, 3):
        return ""
    shown = []
    for place in most_moved(worst, _SHOWN):
        pair = "".join(
            f'<img alt="{when}" src="{data_address(side[place])}"> '
            for when, side in (("before", worst.before), ("after", worst.after))
        )
        words = f"target {label_words(found, worst.targets[place])}, predicted {said_words(found, place)}"
        shown.append(f"<figure>{pair}<figcaption>{escaped(words)}</figcaption></figure>")
    return f'<div class="images">{"".join(shown)}</div>'


def moved_table(found: Findings) -> str:
    """A line for each sample; nothing of what is no table."""
    rows = moved_rows(found, _SHOWN)
    return html_table(("target", "prediction", "features that moved most"), rows, words=(1, 2))


_Any = TypeVar("_Any", Certificate, SmoothedCertificate)

STRENGTHS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
"""ε of the attacks, in units of the mean length of an input."""


@dataclass(frozen=True, eq=False)
class Worst:
    """Samples before and after T_γ: where the loss, less the price of moving, is largest; rows of a table
    become other rows.

    Attributes:
        said: what the network answers before and after, (n,) labels or values.
    """

    before: Tensor
    after: Tensor
    targets: Tensor
    said: tuple[Tensor, Tensor]
    gamma: float


@dataclass(frozen=True, eq=False)
class Findings:
    """One run.

    Attributes:
        chosen: the held-out samples that everything below but the certificate is about.
        certificate, smoothed: None if there is none beside the run, or it is about other weights.
        stability: the certificate of the network's own predictions; None likewise.
        attacks: PGD in the L2 norm, at rising ε; nearest: (n,) L2 distances to the nearest error found.
        bound: of a classifier or regression whose layers have bounds; share: at the run's own γ.
        fragile: features of a table, each moved alone by ``SHARE`` of its spread, the most fragile first.
        remarks: what could not be shown, and why.
    """

    trained: LoadedRun
    chosen: Subset
    seed: int
    certificate: Certificate | None
    stability: Certificate | None
    smoothed: SmoothedCertificate | None
    attacks: list[tuple[Trial, Evaluation]]
    nearest: Tensor | None
    bound: SmoothnessBound | None
    share: ConcaveShare | None
    worst: Worst | None
    fragile: list[FeatureSensitivity]
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run's path: what it is called on the page."""
        return str(self.trained.run.path)

    @property
    def result(self) -> dict[str, Any]:
        """What was measured at the end of its training."""
        result = self.trained.run.result
        assert result is not None  # it was opened as a complete run
        return result


def find_out(
    trained: LoadedRun, unit: float, samples: int, seed: int, advance: Callable[[int], None] | None = None
) -> Findings:
    """Read and measure.

    Args:
        unit: ε = 1 of the attacks; the same for all runs that are compared.
        advance: told of every sample that was attacked; ``work`` says how many there will be.
    """
    told = advance or (lambda count: None)
    data = trained.data
    chosen = Subset.of(data.test, f"{data.name}@test", samples, seed=seed, stratify=False)
    remarks: list[str] = []
    certificate, stability = _certificate(trained, remarks), _stability(trained, remarks)
    smoothed = _smoothed(trained, remarks)
    trials = [Trial("pgd", 2.0, unit * strength) for strength in STRENGTHS]
    attacks = sweep(
        trained.loss, chosen.data, trials, domain=data.domain, cost=trained.cost, seed=seed, progress=told
    )
    nearest = None
    if data.classes is not None:
        nearest = minimum_norm_attack(
            trained.loss,
            chosen.data.inputs,
            chosen.data.targets,
            domain=data.domain,
            seed=seed,
            rounds=8,
            free=None if chosen.data.encoding is None else chosen.data.encoding.attackable,
        ).distance
    told(len(chosen.data))
    return Findings(
        trained=trained,
        chosen=chosen,
        seed=seed,
        certificate=certificate,
        stability=stability,
        smoothed=smoothed,
        attacks=attacks,
        nearest=nearest,
        bound=_bound(trained),
        share=_share(trained, chosen),
        worst=_worst(trained, chosen),
        fragile=fragile_features(trained, chosen.data, told),
        remarks=tuple(remarks),
    )


def unit_of(trained: LoadedRun) -> float:
    """The mean length of an input: ε = 1 of the attacks."""
    return typical_length(trained.data.train, 2.0) or 1.0


def work(trained: LoadedRun, samples: int) -> int:
    """How many samples ``find_out`` will tell of."""
    rounds = len(STRENGTHS) + 1 + len(steepest_features(trained, trained.data.test))
    return min(samples, len(trained.data.test)) * rounds


def _certificate(trained: LoadedRun, remarks: list[str]) -> Certificate | None:
    path = trained.run.path / CERTIFICATE_FOLDER / "certificate.json"
    if not path.exists():
        remarks.append(f"No certificate yet: certus certify {trained.run.path} --rho 0.01 makes one.")
        return None
    return _own(trained, path, read_certificate, "The certificate", remarks)


def _stability(trained: LoadedRun, remarks: list[str]) -> Certificate | None:
    path = trained.run.path / OWN_LABELS_FOLDER / "certificate.json"
    if not path.exists():
        return None
    return _own(trained, path, read_certificate, "The certificate of predicted labels", remarks)


def _smoothed(trained: LoadedRun, remarks: list[str]) -> SmoothedCertificate | None:
    path = trained.run.path / CERTIFICATE_FOLDER / "smoothing.json"
    if not path.exists():
        return None
    return _own(trained, path, SmoothedCertificate.load, "The certificate by smoothing", remarks)


def _own(
    trained: LoadedRun, path: Path, read: Callable[[Path], _Any], what: str, remarks: list[str]
) -> _Any | None:
    """What a file says of these weights; of others, and if it is damaged, nothing but a remark."""
    try:
        found = read(path)
    except RunError as reason:
        remarks.append(f"{what} is left out. {reason}")
        return None
    if found.about["digests"]["weights"] != digest(dict(trained.loss.model.state_dict())):
        remarks.append(f"{what} is left out: it is about other weights.")
        return None
    return found


def _bound(trained: LoadedRun) -> SmoothnessBound | None:
    """Layer by layer; None of a network that has no finite bound."""
    network = copy.deepcopy(trained.loss.model).double()
    shape = tuple(trained.data.test.inputs.shape[1:])
    try:
        found = input_smoothness(
            network, inferred_criterion(trained.data.train.targets), input_shape=shape, cost=trained.cost
        )
    except UnsupportedError:
        return None
    return found if math.isfinite(found.curvature) else None


def _share(trained: LoadedRun, chosen: Subset) -> ConcaveShare | None:
    if trained.gamma is None:
        return None
    data = chosen.data
    try:
        return concave_share(
            trained.loss, data.inputs, data.targets, gamma=trained.gamma, cost=trained.cost, max_products=20
        )
    except UnsupportedError:  # of a norm without an inner product
        return None


def _worst(trained: LoadedRun, chosen: Subset) -> Worst | None:
    if trained.gamma is None:
        return None
    data = chosen.data
    moved = _transported(trained, data)
    with torch.no_grad():
        outputs = [trained.loss.model(inputs) for inputs in (data.inputs, moved)]
    labelled = trained.data.classes is not None
    before, after = (predicted(each) if labelled else each.flatten() for each in outputs)
    return Worst(data.inputs, moved, data.targets, (before, after), trained.gamma)


def _transported(trained: LoadedRun, data: Samples) -> Tensor:
    """T_γ of some samples; of a table, over its rows."""
    encoding = data.encoding
    if encoding is None or encoding.plain:
        return trained.wrm(trained.loss, data.inputs, data.targets)

    def climb(rows: Tensor, cost: Cost) -> Tensor:
        return replace(trained, cost=cost).wrm(trained.loss, rows, data.targets)

    assert trained.gamma is not None
    return real_transport(
        trained.loss,
        data.inputs,
        data.targets,
        encoding,
        climb,
        gamma=trained.gamma,
        cost=trained.cost,
        domain=trained.domain,
    )
