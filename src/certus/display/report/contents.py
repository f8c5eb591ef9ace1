"""Contents of a report: files of a run, measurements on held-out samples, and the summary in sentences."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from certus._eval_mode import loss_eval_mode
from certus._format import at_least, at_most, plain
from certus.attacks.evaluation import Trial, sweep, typical_length
from certus.attacks.minimum_norm import minimum_norm_attack
from certus.bounds import SmoothnessBound, input_smoothness
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.files import read_certificate, with_checked
from certus.certificates.lower_bounds import transport_rows
from certus.costs import Cost
from certus.data import Samples, Subset
from certus.datasets import SplitDataset
from certus.display.figures import Curve
from certus.display.tables import NOT_CHECKED, differing_words, error_name, scope_sentences
from certus.display.text import PlainTable, make_table
from certus.errors import CertusError, UnsupportedError, VerificationError
from certus.inner.concavity import ConcaveShare, concave_share
from certus.kernel.evidence import Evidence
from certus.kernel.smoothing import PREMISES
from certus.losses import inferred_criterion, loss_and_slope, predicted
from certus.models.own_code import is_own_file
from certus.monitoring.history import RESULTS, stored_results
from certus.runs.certification import certified_data, verify_for_run
from certus.runs.directory import CERTIFICATE_FOLDER, OWN_LABELS_FOLDER
from certus.runs.factory import Feature, features_of
from certus.runs.loaded_run import LoadedRun
from certus.runs.sensitivity import FeatureSensitivity, move_feature, spread_cost
from certus.runs.settings import FLAGS, CertifySettings, Settings
from certus.smoothing.certificate import SmoothedCertificate
from certus.storage.files import RunError, convert
from certus.storage.tensors import digest

STRENGTHS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
"""ε of the attacks, in units of the mean length of an input."""

SHARE = 0.1
"""Root mean square move of a single feature, in standard deviations."""

_MAX_FEATURES = 12
_ROWS, _CELLS = 6, 4  # of the table of moved samples

_AnyCertificate = TypeVar("_AnyCertificate", Certificate, SmoothedCertificate)


@dataclass(frozen=True, eq=False)
class Transported:
    """Samples and (n,) predictions before and after T_γ moves the samples; rows of a table become rows."""

    before: Tensor
    after: Tensor
    targets: Tensor
    predictions: tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class RunReport:
    """Contents of a report on one run. Without data, a field is None and its section absent."""

    trained: LoadedRun
    chosen: Subset  # the held-out samples that everything below but the certificates is about
    seed: int
    certificate: Certificate | None  # None if there is none, or it is about other weights
    stability: Certificate | None  # of the network's own predictions; None likewise
    smoothed: SmoothedCertificate | None  # None likewise
    attacks: Curve  # errors, or losses of a regression, by PGD in the L2 norm at rising ε
    nearest: Tensor | None  # (n,) L2 distances to the nearest error found
    bound: SmoothnessBound | None  # of a network whose layers all have finite bounds
    concave_share: ConcaveShare | None  # at the run's own γ
    worst_case: Transported | None
    sensitivity: list[FeatureSensitivity]  # of a table, the most fragile feature first
    checks: tuple[dict[str, Any], ...] = ()  # of certus monitor, about the same weights
    remarks: tuple[str, ...] = ()  # what could not be shown, and why

    @property
    def name(self) -> str:
        """The path of the run, which is its name on the page."""
        return str(self.trained.run.path)

    @property
    def attacked_quantity(self) -> str:
        """The label of ``attacks``."""
        return "mean loss under attack" if self.trained.data.classes is None else "error under attack"


def nearest_distances(reports: Sequence[RunReport]) -> dict[str, list[float]]:
    """Return the distances to the nearest errors of each run that has them, by its name."""
    return {report.name: report.nearest.tolist() for report in reports if report.nearest is not None}


def measure_run(
    trained: LoadedRun, unit: float, samples: int, seed: int, advance: Callable[[int], None] | None = None
) -> RunReport:
    """Read the certificates of a run, and measure everything else; ``unit`` is ε = 1 of the attacks, and
    ``advance`` is called with the number of samples of each finished step."""
    progress = advance or (lambda count: None)
    data, folder, loss = trained.data, trained.run.path, trained.loss
    chosen = Subset.of(data.test, f"{data.name}@test", samples, seed=seed, stratify=False)
    rows, remarks = chosen.data, []
    weights = digest(dict(loss.model.state_dict()))

    def load(path: Path, read: Callable[[Path], _AnyCertificate], name: str) -> _AnyCertificate | None:
        """Read a certificate; None, with a remark, if it is damaged or about other weights."""
        if not path.exists():
            return None
        try:
            certificate = read(path)
        except RunError as reason:
            remarks.append(f"{name} is left out. {reason}")
            return None
        if certificate.about["digests"]["weights"] != weights:
            remarks.append(f"{name} is left out: it belongs to other weights.")
            return None
        return certificate

    def verified(path: Path) -> Certificate:
        """Read a certificate, and check it on the rows that it names, if it can be checked."""
        stated = read_certificate(path)
        try:
            settings = convert(stated.about["settings"], CertifySettings)
            rows = certified_data(trained, settings).data
            return with_checked(stated, verify_for_run(stated, trained, settings, rows))
        except VerificationError as reason:
            raise RunError(str(reason)) from None
        except (CertusError, LookupError) as reason:
            remarks.append(f"Not re-checked: {reason}")
            return stated

    def verified_table(path: Path) -> SmoothedCertificate:
        """Read a certificate by smoothing, and prove it again from its table of counts."""
        stated = SmoothedCertificate.load(path)
        try:
            return stated.verify()
        except VerificationError as reason:
            raise RunError(str(reason)) from None
        except CertusError as reason:
            remarks.append(f"Not re-checked: {reason}")
            return stated

    path, noisy = (folder / CERTIFICATE_FOLDER / name for name in ("certificate.json", "smoothing.json"))
    if not path.exists() and not noisy.exists():
        own = f" --model {trained.settings.model}" if is_own_file(trained.settings.model) else ""
        remarks.append(f"No certificate yet: `certus certify {folder}{own} --rho 0.01` writes one.")
    certificate = load(path, verified, "The certificate")
    stable = folder / OWN_LABELS_FOLDER / "certificate.json"
    stability = load(stable, verified, "The certificate of predicted labels")
    smoothed = load(noisy, verified_table, "The certificate by smoothing")
    trials = [Trial("pgd", 2.0, unit * strength) for strength in STRENGTHS]
    attacks = sweep(loss, rows, trials, domain=data.domain, cost=trained.cost, seed=seed, progress=progress)
    nearest = None
    if data.classes is not None:
        free = None if rows.encoding is None else rows.encoding.attackable
        nearest = minimum_norm_attack(
            loss, rows.inputs, rows.targets, domain=data.domain, seed=seed, rounds=8, free=free
        ).distance
    progress(len(rows))
    return RunReport(
        trained=trained,
        chosen=chosen,
        seed=seed,
        certificate=certificate,
        stability=stability,
        smoothed=smoothed,
        attacks=Curve.of(
            [trial.strength for trial, _ in attacks], [out.error or out.loss for _, out in attacks]
        ),
        nearest=nearest,
        bound=_smoothness(trained),
        concave_share=_concave_share(trained, rows),
        worst_case=_transport(trained, rows),
        sensitivity=_sensitivity(trained, rows, progress),
        checks=tuple(each for each in stored_results(folder / RESULTS) if each.get("weights") == weights),
        remarks=tuple(remarks),
    )


def attack_unit(trained: LoadedRun) -> float:
    """Return the mean length of an input: ε = 1 of the attacks."""
    return typical_length(trained.data.train, 2.0) or 1.0


def evaluations(trained: LoadedRun, samples: int) -> int:
    """Count the samples that ``measure_run`` will report to ``advance``."""
    rounds = len(STRENGTHS) + 1 + len(_steepest_features(trained, trained.data.test))
    return min(samples, len(trained.data.test)) * rounds


def _smoothness(trained: LoadedRun) -> SmoothnessBound | None:
    network = copy.deepcopy(trained.loss.model).double()
    shape = tuple(trained.data.test.inputs.shape[1:])
    criterion = inferred_criterion(trained.data.train.targets)
    try:
        bound = input_smoothness(network, criterion, input_shape=shape, cost=trained.cost)
    except UnsupportedError:
        return None
    return bound if math.isfinite(bound.curvature) else None


def _concave_share(trained: LoadedRun, data: Samples) -> ConcaveShare | None:
    if trained.gamma is None:
        return None
    loss, inputs, targets = trained.loss, data.inputs, data.targets
    try:
        return concave_share(loss, inputs, targets, gamma=trained.gamma, cost=trained.cost, max_products=20)
    except UnsupportedError:  # of a norm without an inner product
        return None


# The worst case of samples


def _transport(trained: LoadedRun, data: Samples) -> Transported | None:
    """Apply T_γ to samples; of a table, over its rows."""
    loss, inputs, targets, encoding = trained.loss, data.inputs, data.targets, data.encoding
    if trained.gamma is None:
        return None

    def climb(rows: Tensor, cost: Cost) -> Tensor:
        return replace(trained, cost=cost).wrm(loss, rows, targets)

    if encoding is None or encoding.plain:
        moved = climb(inputs, trained.cost)
    else:
        gamma, cost, domain = trained.gamma, trained.cost, trained.domain
        moved = transport_rows(loss, inputs, targets, encoding, climb, gamma=gamma, cost=cost, domain=domain)
    with torch.no_grad():
        outputs = [loss.model(batch) for batch in (inputs, moved)]
    labelled = trained.data.classes is not None
    before, after = (predicted(each) if labelled else each.flatten() for each in outputs)
    return Transported(inputs, moved, targets, (before, after))


def moved_rows(report: RunReport) -> tuple[PlainTable, list[tuple[str, float]]] | None:
    """Return the rows of a table that move most, with targets, predictions and moved features, and the mean
    absolute moves of features, largest first; None for other data."""
    worst, data = report.worst_case, report.trained.data
    if worst is None or not data.feature_names or worst.before.dim() != 2:
        return None
    features = features_of(data)
    lengths = (worst.after.double() - worst.before.double()).abs()
    heads = ("target", "prediction", "features that moved most")
    table = make_table(*heads, words=heads)
    for index in most_moved(worst, _ROWS):
        sizes = {feature: float(lengths[index, list(feature.columns)].max()) for feature in features}
        before, after = worst.before[index], worst.after[index]
        changes = [
            f"{feature.name} {_cell(report, before, feature)} → {_cell(report, after, feature)}"
            for feature in sorted(features, key=lambda name: -sizes[name])[:_CELLS]
            if sizes[feature] > 0
        ]
        target = label_words(report, worst.targets[index])
        table.add_row(target, changed_words(report, index), "; ".join(changes))
    means, moves = lengths.mean(0), []
    for feature in features:
        # A changed category moves two of its inputs by 1; the season of a date goes with its day.
        both = float(means[list(feature.columns)].sum()) / 2
        moves.append((feature.name, both if feature.category else float(means[feature.columns[0]])))
    return table, [move for move in sorted(moves, key=lambda move: -move[1]) if move[1] > 0][:_MAX_FEATURES]


def most_moved(worst: Transported, count: int) -> list[int]:
    """Return the samples whose prediction changes first, then those that move farthest."""
    length = (worst.after - worst.before).flatten(1).double().norm(dim=1)
    before, after = worst.predictions
    changed = (before != after).double() if not before.is_floating_point() else 0.0
    order = torch.argsort(length + changed * (float(length.max()) + 1), descending=True)
    return [int(index) for index in order[:count]]


def label_words(report: RunReport, target: Tensor) -> str:
    """Return the name of a label, or the value of a regression in the units of the source."""
    data = report.trained.data
    if data.classes is None:
        mean, scale = data.target_scale or (0.0, 1.0)
        return plain(float(target) * scale + mean, 4)
    label = int(target)
    return data.class_names[label] if data.class_names and label < len(data.class_names) else str(label)


def changed_words(report: RunReport, index: int) -> str:
    """Return the prediction of a sample before and after."""
    assert report.worst_case is not None
    before, after = (label_words(report, side[index]) for side in report.worst_case.predictions)
    return f"{before} → {after}"


def _cell(report: RunReport, row: Tensor, feature: Feature) -> str:
    """Return a number in the units of the source, or the name of a category."""
    data, first = report.trained.data, feature.columns[0]
    if feature.category:
        hot = [column for column in feature.columns if row[column] == 1]
        assert data.feature_names is not None
        return data.feature_names[hot[0]].removeprefix(f"{feature.name}=") if hot else "unknown"
    mean = 0.0 if data.input_scale is None else float(data.input_scale[0][first])
    return plain(float(row[first]) * feature.scale + mean, 4)


def _sensitivity(
    trained: LoadedRun, rows: Samples, progress: Callable[[int], None]
) -> list[FeatureSensitivity]:
    moves = []
    for feature in _steepest_features(trained, trained.data.test):
        rho = spread_cost(trained.data, rows, feature, SHARE)
        if rho > 0:  # it varies in these rows, too
            moves.append(move_feature(trained, rows, feature, rho))
        progress(len(rows))
    return sorted(moves, key=lambda move: move.rank, reverse=True)


def _steepest_features(trained: LoadedRun, rows: Samples) -> list[Feature]:
    """Return the features along which the loss rises most, by first order; none unless rows of a table."""
    data = trained.data
    if not data.feature_names or rows.inputs.dim() != 2:
        return []
    with loss_eval_mode(trained.loss):
        _, slopes = loss_and_slope(trained.loss, rows.inputs.detach().requires_grad_(), rows.targets)
    rise = slopes.double().abs().mean(0) * rows.inputs.double().std(0, correction=0)
    ranked = sorted(features_of(data), key=lambda feature: -float(rise[list(feature.columns)].sum()))
    return [feature for feature in ranked if spread_cost(data, rows, feature, SHARE) > 0][:_MAX_FEATURES]


# Origin of the run


def run_facts(report: RunReport) -> dict[str, object]:
    """Return data, seed and versions of a run."""
    data, record = report.trained.data, report.trained.run.record
    splits = {"to train": data.train, "to calibrate": data.calibration, "to test": data.test}
    counts = ", ".join(f"{len(split)} {name}" for name, split in splits.items())
    facts: dict[str, object] = {
        "data": f"{data.name} ({counts})",
        "sha256 of the data": data.sha256 or "–",
        "distances in": data.units,
        "seed": report.trained.settings.seed,
        "trained with": f"certus {record.certus_version}, torch {record.torch_version}",
    }
    if report.certificate is not None:
        origin = report.certificate.about
        facts["certificate of"] = origin["rows"]["words"]
        facts["certified with"] = f"certus {origin['certus_version']}, code {origin['code_digest']}"
    return facts


def report_commands(report: RunReport) -> list[str]:
    """Return the commands that make the run and its certificates again."""
    imported = report.trained.run.record.origin == "imported"
    commands = [train_command(report.trained.settings, report.name, imported=imported)]
    for certificate in (report.certificate, report.stability):
        if certificate is not None:
            flags = _flags(convert(certificate.about["settings"], CertifySettings), {"rho_origin"})
            commands.append(shlex.join(["certus", "certify", report.name, *flags]))
    return commands


def train_command(settings: Settings, path: str, *, imported: bool) -> str:
    """Return ``certus train …``, or ``certus import …``, with all options that are not defaults."""
    start = ["import", "--weights", "WEIGHTS", "--data"] if imported else ["train"]
    flags = _flags(settings, {"method", "folder"} if imported else {"folder"})
    return shlex.join(["certus", *start, settings.data, "--model", settings.model, *flags, "-o", path])


def _flags(settings: Settings | CertifySettings, hidden: Collection[str] = ()) -> list[str]:
    words: list[str] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.default is MISSING or value == field.default or field.name in hidden:
            continue
        name = {"gammas": "gamma"}.get(field.name, field.name)
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            for item in value if isinstance(value, tuple) else (value,):
                words += [flag, str(item)]
    return words


# The summary at the top of a report: plain sentences, each with its evidence


def summary(report: RunReport) -> list[str]:
    """Summarise the model, its present error rate, and the worst case under moved data."""
    data, settings = report.trained.data, report.trained.settings
    task = "predicts a number" if data.classes is None else f"tells {data.classes} classes apart"
    methods = {"wrm": "robustly (wrm)", "erm": "in the ordinary way (erm)"}
    how = methods.get(settings.method, f"against attacks ({settings.method})")
    origin = f"It was trained {how} on {data.name}."
    if report.trained.run.record.origin == "imported":
        origin = f"Its weights were imported; its data are {data.name}."
    result = report.trained.run.result
    assert result is not None  # it was opened as a complete run
    test = result["test"]
    now = f"its mean loss is {test['loss']:.4g}"
    if "accuracy" in test:
        now = f"it errs on {1 - test['accuracy']:.1%}"
    sentences = [
        f"This model ({settings.model}) {task}. {origin}",
        f"On the {len(data.test)} test samples, unmoved, {now} (attained).",
    ]
    certificate = report.certificate
    if certificate is not None:
        brackets = [bracket for bracket in certificate.curve() if bracket.rho > 0]
        sentences += [_bracket_words(bracket, certificate, report.trained) for bracket in brackets]
        sentences += scope(certificate)
    if report.smoothed is not None:
        sentences.append(_noise_words(report.smoothed, data))
    return sentences


def _noise_words(certificate: SmoothedCertificate, data: SplitDataset) -> str:
    """Bound the errors of the model with noise on its inputs, at the largest ρ of the certificate."""
    rho, names = max(certificate.rhos), [quantity.name for quantity in certificate.quantities]
    name = "vote" if "vote" in names else names[0]
    what, on, share = "its mean loss can reach", "", name == "vote"
    if share:
        what, on = f"a majority vote of {certificate.votes} noisy predictions can err or abstain on", "on "
    low = _written(certificate.lower(rho, name), at_least, share=share)
    high = _written(certificate.bound(rho, name), at_most, share=share)
    return (
        f"With Gaussian noise of standard deviation {certificate.sigma:g} on its inputs, and data that move "
        f"by a root mean square distance of {rho**0.5:.3g} ({data.units}), {what} {low} "
        f"({certificate.lower_evidence}) and {on}at most {high} ({certificate.evidence}, with confidence "
        f"{certificate.confidence:g}). Premises: {'; '.join(PREMISES)}."
    )


def _bracket_words(bracket: Bracket, certificate: Certificate, trained: LoadedRun) -> str:
    """State that the error rate can reach a share and cannot exceed another if the data move by √ρ."""
    words = "; ".join(filter(None, (move_example(bracket.rho, trained), f"in {trained.data.units}")))
    start = f"If the data move by a root mean square distance of {bracket.distance:.3g} ({words}), "
    name, low, high = error_name(certificate.labels), bracket.error_low, bracket.error_high
    limit = certificate.vacuous_error
    share = low is not None
    if low is None:
        name, low, high = "mean loss", bracket.loss_low, bracket.loss_high
        limit = certificate.vacuous_loss or math.inf
    least = _written(low, at_least, share=share)
    attained = certificate.lower_evidence is Evidence.ATTAINED
    start += f"the {name} can reach {least} ({'attained: such data were found' if attained else NOT_CHECKED})"
    if certificate.no_proof is not None or high is None:
        return f"{start}. No upper bound is proven."
    vacuous = "; vacuous: a constant answer does as well" if high >= limit else ""
    return (
        f"{start} and cannot exceed {_written(high, at_most, share=share)} ({certificate.evidence}{vacuous})."
    )


def move_example(rho: float, trained: LoadedRun) -> str:
    """Give an example of a move that costs ρ in every sample, in the data's units; empty if there is none.
    Costs of runs are squares of norms: along a direction d of unit cost c(d), √(ρ/c(d)) costs ρ."""
    data, shape = trained.data, trained.data.train.inputs.shape[1:]
    size = math.prod(shape)

    def length(direction: torch.Tensor) -> float:
        """Return √(ρ/c) of a direction, in the units of the inputs; 0 where the cost is infinite."""
        unit = direction.double().reshape(1, *shape)
        return math.sqrt(rho / float(trained.cost(unit, torch.zeros_like(unit))))

    if len(shape) == 3:
        alone, every = length(one_hot(torch.tensor(0), size)), length(torch.ones(size))
        each = f"or all {size} by {every:.2g} each"
        return f"as when one pixel of every image changes by {alone:.3g}, {each}"
    if data.feature_names is None or data.input_scale is None:
        return ""
    moves = []
    for feature in features_of(data):
        if not (feature.category or feature.mark or len(feature.columns) > 1):
            alone = length(one_hot(torch.tensor(feature.columns[0]), size))
            moves.append((alone * feature.scale, feature.name))
    largest, name = max(moves, default=(0.0, ""))
    return f"as when {name} alone changes by {plain(largest)} in every row" if largest > 0 else ""


def scope(certificate: Certificate) -> list[str]:
    """State the samples that the numbers refer to, and their assumptions."""
    sentences = [
        f"These numbers are about {certificate.about['rows']['words']}. They cover every way to move these "
        "samples whose root mean square distance is at most the stated one. That allows more than moving "
        "each sample by at most that distance: a few samples may move far if the others stay."
    ]
    sentences += scope_sentences(certificate)
    now = None if certificate.no_proof is not None else certificate.bracket(0.0).error_low
    rows = certificate.about["rows"]
    whole = rows["source"].endswith("@test") and rows["count"] == rows["total"]  # the summary has its error
    if now is not None and not whole:
        sentences.append(
            f"On these samples, unmoved, the model errs on {now:.1%} ({certificate.lower_evidence})."
        )
    if certificate.differing_predictions:
        sentences.append(differing_words(certificate))
    if certificate.population is not None:
        sentences.append(_population_words(certificate))
    if certificate.statement.evidence is Evidence.STATED:
        sentences.append(
            "The certificate was read from its file, and was not re-checked: certus verify does that."
        )
    elif certificate.lower_evidence is Evidence.STATED:
        sentences.append(
            "The upper bounds were checked again by the kernel; the lower ones are stated in the file."
        )
    if certificate.no_proof is not None:
        sentences.append(f"Nothing is proven about this model: {certificate.no_proof}")
    elif certificate.assumptions:
        named = "; ".join(certificate.assumptions)
        sentences.append(f"The upper bounds rest on claims that certus did not prove: {named}.")
    else:
        sentences.append(
            "As stated, the upper bounds hold for this network with its stored weights in exact arithmetic "
            "and rest on no unproven claim about it. The same network in float32 can differ by its rounding."
        )
    return sentences


def _population_words(certificate: Certificate) -> str:
    """Bound the population that the samples were drawn from, at the largest ρ of the certificate."""
    population, bracket = certificate.population, certificate.bracket(max(certificate.rhos))
    assert population is not None
    name, bound = f"mean loss, clipped at {population.clip:.4g},", at_most(bracket.population_loss or 0.0)
    if bracket.population_error is not None:
        name = error_name(certificate.labels)
        bound = _written(bracket.population_error, at_most, share=True)
    return (
        "For the population that these samples were drawn from, moved by a root mean square distance of "
        f"{bracket.distance:.3g}, the {name} is at most {bound} ({certificate.evidence}, with confidence "
        f"{population.confidence:g}). This assumes that the samples were drawn independently and that "
        f"nothing was trained or tuned on them.{repeat_words(population.repeats, certificate.samples)}"
    )


def _written(bound: float, rounded: Callable[[float, int], str], *, share: bool) -> str:
    return f"{rounded(100 * bound, 1)}%" if share else rounded(bound, 4)
