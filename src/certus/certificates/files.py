"""Certificates as files: ``certificate.json`` with digests, and a table of samples."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta, Struct
from safetensors.torch import save
from torch import Tensor

from certus.bounds.smoothness import validity_statement
from certus.certificates.batching import repeat_words
from certus.certificates.cache import differences
from certus.certificates.certificate import Certificate
from certus.certificates.confidence import INEQUALITIES
from certus.certificates.dual_values import AttackAggregate, DualAggregate
from certus.certificates.error_costs import error_distance, proposed_gamma
from certus.certificates.graph_files import describe_problem, load_graph
from certus.certificates.population import Move, Population
from certus.certificates.problem import gather
from certus.data import DataLike, Samples
from certus.errors import (
    ArgumentError,
    CertusError,
    ContradictionError,
    UnsupportedError,
    VerificationError,
    require,
)
from certus.kernel.check import FILES, ROWS, Checked, NotProven, check, digest_rows, sibling
from certus.kernel.files import read_bytes
from certus.kernel.knapsack import dual_bound
from certus.kernel.passes import Refused
from certus.kernel.rules import Rule
from certus.kernel.statement import PopulationBounds, Statement
from certus.losses import predicted
from certus.storage.files import (
    Confidence,
    CorruptFileError,
    Count,
    NonNegative,
    Positive,
    RunError,
    Share,
    convert,
    read_json,
)
from certus.storage.write import (
    add_checksum,
    verify_checksum,
    without_checksum,
    write_atomically,
)

CERTIFICATE_VERSION = 7

PREDICTED_LABELS_STATEMENT = (
    "The labels are the model's own predictions on the unmoved samples. An error is therefore a prediction "
    "that changes, not one that is wrong; nothing is said about how often the predictions are right."
)

NO_PROOF_VALIDITY = (
    "Nothing is proven. What is attained was computed with the model itself, in floating point, at points "
    "that attacks found."
)

ERRORS_ALONE = "Nothing is proven of the loss; of the error rate an upper side is."


_PLAIN = ("about", "samples", "classes", "unit_cost", "clip")
_ERROR_COSTS = ("proven_error_cost", "attained_error_cost")
_OF_POPULATION = ("confidence", "seed", "clip", "inequality")
_FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError)


def as_json(certificate: Certificate) -> dict[str, Any]:
    """Everything that the certificate says, as JSON with a digest of its own; infinities become None."""
    content: dict[str, Any] = {
        "schema_version": CERTIFICATE_VERSION,
        "evidence": certificate.evidence,
        "assumptions": certificate.assumptions,
        "validity": validity_statement(certificate.assumptions),
        **{name: getattr(certificate, name) for name in (*_PLAIN, "clean_loss", "rhos", "epsilons")},
        "brackets": [asdict(bracket) for bracket in certificate.curve()],
        "accuracies": [asdict(accuracy) for accuracy in certificate.accuracies()],
        "population": _population(certificate.population, certificate.samples),
        "aggregates": [
            asdict(line) | {"bound": certificate.statement.means.get(line.gamma, math.inf)}
            for line in certificate.aggregates
        ],
        "attacks": [asdict(attack) for attack in certificate.attacks],
        **{name: getattr(certificate, name) for name in _ERROR_COSTS},
    }
    for name in ("weights", "class_weights", "differing_predictions"):
        value = getattr(certificate, name)
        if isinstance(value, Tensor) or value:
            content[name] = value
    if certificate.labels == "predicted":
        content |= {"labels": "predicted", "labels_statement": PREDICTED_LABELS_STATEMENT}
    if certificate.no_proof is not None:
        has_error_bound = certificate.proven_error_cost is not None
        validity = f"{ERRORS_ALONE} {content['validity']}" if has_error_bound else NO_PROOF_VALIDITY
        content |= {"no_proof": certificate.no_proof, "validity": validity}
    return add_checksum(_plain(content))


def write_certificate(certificate: Certificate, path: Path, *, include_data: bool = False) -> None:
    """Write ``certificate.json`` and the files beside it, which belong to it by their digests."""
    files = certificate_files(certificate, path.name, include_data=include_data)
    for name, content in files.items():
        write_atomically(path.with_name(name), content)
    remove_absent(path, files)


def remove_absent(path: Path, files: Mapping[str, bytes]) -> None:
    """Remove files of an earlier certificate at this path that the new one does not have."""
    for name in (*FILES, ROWS):
        if sibling(path, name).name not in files:
            sibling(path, name).unlink(missing_ok=True)


def certificate_files(certificate: Certificate, name: str, *, include_data: bool = False) -> dict[str, bytes]:
    """Return the content of all files of a certificate, by their names; that with this name comes last."""
    files: dict[str, bytes] = {}
    check: dict[str, Any]
    if certificate.source is None and certificate.file is not None:
        check = read_content(certificate.file).get("check", {"reason": "the file has no witnesses."})
        present = [each for each in (*FILES, ROWS) if sibling(certificate.file, each).exists()]
        files = {each: read_bytes(sibling(certificate.file, each)) for each in present}
    else:
        try:
            files, check = _check_files(certificate, include_data=include_data)
        except UnsupportedError as reason:
            check = {"reason": str(reason)}
    content = add_checksum(as_json(certificate) | {"check": check})
    beside = {sibling(Path(name), each).name: part for each, part in files.items()}
    return beside | {name: json_bytes(content)}


def json_bytes(content: dict[str, Any]) -> bytes:
    """Content of a JSON file."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def used_gammas(certificate: Certificate) -> list[float]:
    """The γ that prove a number at the ρ asked for, of the sample or of the population."""
    statement, people, rhos = certificate.statement, certificate.population, certificate.rhos
    gammas = [statement.loss(rho)[1] for rho in rhos]
    if people is not None:
        means = people.upper.means
        gammas += [min(means, key=lambda gamma: dual_bound({gamma: means[gamma]}, rho)) for rho in rhos]
    return list(dict.fromkeys(gammas))


def _check_files(certificate: Certificate, *, include_data: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files that the kernel checks a certificate from, and the entry about them."""
    if certificate.source is None or certificate.no_proof is not None:
        raise UnsupportedError("of this loss nothing is proven, and no witnesses are kept.")
    gammas, costs = used_gammas(certificate), certificate.proven_error_cost
    problem, witnesses = certificate.source.witnesses(gammas)
    description, tensors = describe_problem(problem)
    parts = [
        json_bytes(description),
        save(tensors),
        save({name: part.clone(memory_format=torch.contiguous_format) for name, part in witnesses.items()}),
    ]
    files = dict(zip(FILES, parts, strict=True))
    weights = certificate.weights
    check = {
        "gammas": gammas,
        "error_gammas": [
            0.0 if costs is None else proposed_gamma(costs, rho, weights) for rho in certificate.rhos
        ],
        "files": {name: hashlib.sha256(part).hexdigest() for name, part in files.items()},
        "rows": digest_rows(problem.inputs, problem.targets),
    }
    if include_data:
        single = problem.inputs.float()
        inputs = single if torch.equal(single.double(), problem.inputs) else problem.inputs
        rows = {"inputs": inputs.contiguous(), "targets": problem.targets.contiguous()}
        files[ROWS] = save(rows if weights is None else rows | {"weights": weights})
    return files, check


def check_certificate(certificate: Certificate, data: DataLike | Path | None = None) -> Checked:
    """Check a loaded certificate by the kernel.

    Args:
        data: the certified samples, or a file with them, unless they are included.

    Raises ``VerificationError`` if a claim is not proven, ``UnsupportedError`` if nothing can be checked.
    """
    file = certificate.file
    if file is None:
        raise ArgumentError("A certificate must be loaded from a file to be checked; this one is fresh.")
    try:
        return check(file, data if data is None or isinstance(data, Path) else _rows(certificate, data))
    except NotProven as reason:
        raise VerificationError(f"{file} is not verified: {reason}.") from None
    except Refused as reason:
        raise UnsupportedError(f"{file}: {reason}.") from None


def verified_certificate(certificate: Certificate, data: DataLike | None = None) -> Certificate:
    """Check a loaded certificate by the kernel; see ``Certificate.verify``."""
    if certificate.file is None:
        return certificate
    checked = check_certificate(certificate, data)
    if failed := checked.failed:
        raise VerificationError(f"{certificate.file} is not verified: {failed[0].words}.")
    people = certificate.population
    if people is not None and checked.statement.population is not None:
        people = replace(people, upper=checked.statement.population)
    return replace(certificate, statement=checked.statement, population=people)


def _rows(certificate: Certificate, data: DataLike) -> dict[str, Tensor]:
    """Return certified samples as the kernel takes them."""
    inputs, targets = gather(data)
    if targets is None or certificate.labels == "predicted":
        assert certificate.file is not None
        network = load_graph(certificate.file.parent, sibling(certificate.file, FILES[0]).name)
        with torch.no_grad():
            targets = predicted(network(inputs))
    elif certificate.classes is None:
        targets = targets.double()
    weights = data.weights if isinstance(data, Samples) else None
    rows = {"inputs": inputs, "targets": targets}
    return rows if weights is None else rows | {"weights": weights.detach().cpu().double()}


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; check its checksum, the types of its entries, and that its brackets follow."""
    content = read_content(path)
    content.pop("check", None)  # for the kernel
    try:
        certificate = replace(_certificate(content), file=path)
        # The evidence of what was read is that it is stated.
        derived = without_checksum(as_json(certificate)) | {"evidence": content["evidence"]}
    except ContradictionError as reason:
        raise ContradictionError(f"{path}: {reason}") from None
    except (CertusError, Refused, *_FAULTS) as reason:
        line = " ".join(str(reason).split()) or type(reason).__name__
        raise CorruptFileError(f"{path} is corrupt: {line}") from None
    if different := differences(content, derived):
        raise CorruptFileError(
            f"{path} is corrupt: what it says does not follow from the rest: {different[0]}."
        )
    return certificate


def read_content(path: Path) -> dict[str, Any]:
    """What the JSON file of a certificate holds, without its digest, which was checked."""
    content = read_json(path)
    if not isinstance(content, dict) or "brackets" not in content:
        raise RunError(f"{path} is no certificate.")
    if content.get("kind") == "smoothing":
        raise RunError(f"{path} is a certificate by smoothing: read it with SmoothedCertificate.load.")
    if (version := content.get("schema_version")) != CERTIFICATE_VERSION:
        raise RunError(
            f"{path} is a certificate of schema version {version}; this version of certus reads "
            f"{CERTIFICATE_VERSION} only: certify again."
        )
    return verify_checksum(content, path)


_Costs = Annotated[list[Annotated[float, Meta(ge=0)] | None], Meta(min_length=1)]
"""One cost per sample; None stands for ∞."""


class _Aggregate(Struct, forbid_unknown_fields=True):
    gamma: Positive
    bound: float | None
    rho_hat: Annotated[float, Meta(ge=0)]
    loss: float
    rules: dict[str, Share]


class _Attack(Struct, forbid_unknown_fields=True):
    rho: NonNegative
    transport_cost: NonNegative
    loss: float


class _Mean(Struct, forbid_unknown_fields=True):
    gamma: Positive
    mean: float


class _Move(Struct, forbid_unknown_fields=True):
    gamma: Positive
    mean: float | None
    cost: NonNegative
    loss: float


class _Population(Struct, forbid_unknown_fields=True):
    confidence: Confidence
    seed: Count
    clip: Positive
    inequality: str
    statement: str
    clean_loss: float
    grid: Annotated[list[_Move], Meta(min_length=1)]
    error_grid: list[_Mean]
    error_margin: NonNegative | None
    error_margin_low: NonNegative | None
    attained_error_cost: _Costs | None
    repeats: Count = 0

    def __post_init__(self) -> None:
        if self.inequality not in INEQUALITIES:
            raise ValueError(f"Expected `inequality` to be one of {', '.join(INEQUALITIES)}")
        errors = (self.error_margin, self.error_margin_low, self.attained_error_cost)
        if len({entry is None for entry in errors}) > 1:
            raise ValueError(
                "Expected all of error_margin, error_margin_low and attained_error_cost, or none"
            )


class _CertificateFile(Struct):
    """Types of the entries that a certificate is rebuilt from; the others must follow from them."""

    evidence: Literal["proven", "assumed", "attained", "stated"]
    rhos: list[NonNegative]
    epsilons: list[NonNegative]
    aggregates: list[_Aggregate]
    attacks: list[_Attack]
    clean_loss: tuple[float, float | None]
    proven_error_cost: _Costs | None
    attained_error_cost: _Costs | None
    population: _Population | None
    assumptions: list[str]
    samples: Annotated[int, Meta(ge=1)]
    classes: Annotated[int, Meta(ge=2)] | None
    unit_cost: Positive
    clip: Positive | None
    about: dict[str, Any]
    no_proof: str | None = None
    weights: list[float] | None = None
    class_weights: list[float] | None = None
    differing_predictions: Count = 0
    labels: Literal["given", "predicted"] = "given"

    def __post_init__(self) -> None:
        for name in (*_ERROR_COSTS, "weights"):
            values = getattr(self, name)
            if values is not None and len(values) != self.samples:
                raise ValueError(f"Expected `{name}` of {self.samples} samples, got {len(values)}")
        if self.class_weights is not None and len(self.class_weights) != self.classes:
            raise ValueError(f"Expected `class_weights` of {self.classes} classes")
        if self.differing_predictions > self.samples:
            raise ValueError(f"Expected `differing_predictions` of at most {self.samples}")
        if self.population is not None and (self.population.error_margin is None) != (self.classes is None):
            raise ValueError("Expected error_margin of a population with labels, and only there")
        settings = self.about.get("settings")
        own_labels = settings.get("own_labels") if isinstance(settings, dict) else None
        if own_labels is not None and (self.labels == "predicted") != (own_labels is True):
            raise ValueError("Expected `labels` to be those of the settings")
        if bool(self.aggregates) != (self.no_proof is None):
            raise ValueError("Expected either `aggregates` or `no_proof`")
        upper = "assumed" if self.assumptions else "proven"
        if self.evidence not in (("attained",) if self.no_proof is not None else (upper, "stated")):
            raise ValueError(f"Expected another `evidence` than {self.evidence}")


def _certificate(content: dict[str, Any]) -> Certificate:
    file = convert(content, _CertificateFile)
    people, population = content["population"], None
    if people is not None:
        grid = people["grid"]
        upper = PopulationBounds(
            means={entry["gamma"]: entry["mean"] for entry in grid if entry["mean"] is not None},
            error_means={entry["gamma"]: entry["mean"] for entry in people["error_grid"]},
            error_margin=people["error_margin"],
            assumptions=tuple(file.assumptions),
            **{name: people[name] for name in _OF_POPULATION},
        )
        population = Population(
            upper,
            moves={entry["gamma"]: Move(entry["cost"], entry["loss"]) for entry in grid},
            attained_error_cost=_tensor(people["attained_error_cost"]),
            repeats=people.get("repeats", 0),
            **{name: people[name] for name in ("clean_loss", "error_margin_low")},
        )
    low, high = content["clean_loss"]
    lines = content["aggregates"]
    statement = Statement(
        clean_loss=math.inf if high is None else high,
        # ∞ as a regression has it at small γ
        means={line["gamma"]: math.inf if line["bound"] is None else line["bound"] for line in lines},
        error_costs=_tensor(content["proven_error_cost"]),
        weights=_tensor(content.get("weights")),
        population=None if population is None else population.upper,
        assumptions=tuple(file.assumptions),
        **{name: content[name] for name in ("samples", "unit_cost", "clip")},
    )
    return Certificate(
        statement,
        rhos=tuple(content["rhos"]),
        epsilons=tuple(content["epsilons"]),
        aggregates=tuple(
            DualAggregate(**{name: value for name, value in line.items() if name != "bound"})
            for line in lines
        ),
        attacks=tuple(AttackAggregate(**entry) for entry in content["attacks"]),
        attained_clean_loss=low,
        attained_error_cost=_tensor(content["attained_error_cost"]),
        population=population,
        no_proof=file.no_proof,
        class_weights=None if file.class_weights is None else tuple(file.class_weights),
        differing_predictions=file.differing_predictions,
        labels=file.labels,
        classes=content["classes"],
        about=content["about"],
    )


def _population(population: Population | None, samples: int) -> dict[str, Any] | None:
    if population is None:
        return None
    upper = population.upper
    content = {
        **{name: getattr(upper, name) for name in _OF_POPULATION},
        "statement": (
            f"With probability at least {population.confidence:g} over {samples} independent draws, taken in "
            f"the random order of seed {upper.seed}, the worst loss, clipped at {population.clip:g}, "
            "and the worst error rate, if any, around the distribution that they were drawn from lie within "
            f"these bounds for all rho at once.{repeat_words(population.repeats, samples)}"
        ),
        "clean_loss": population.clean_loss,
        "grid": [
            {"gamma": gamma, "mean": upper.means.get(gamma), **asdict(move)}
            for gamma, move in population.moves.items()
        ],
        "error_grid": [{"gamma": gamma, "mean": mean} for gamma, mean in upper.error_means.items()],
        "error_margin": upper.error_margin,
        **{name: getattr(population, name) for name in ("error_margin_low", "attained_error_cost")},
    }
    return content | ({"repeats": population.repeats} if population.repeats else {})


def _tensor(values: list[float | None] | None) -> Tensor | None:
    """(n,) values of a file, in which None stands for ∞."""
    if values is None:
        return None
    return torch.tensor([math.inf if value is None else value for value in values], dtype=torch.float64)


def sample_table(certificate: Certificate) -> str:
    """CSV: for each ρ asked for and each sample φ̄ at its best γ, the rule, and the distances to an error.

    Without a proof, the distance of each sample to an error that was found.
    """
    if certificate.no_proof is not None:
        attained = certificate.attained_error_cost
        distances = [] if attained is None else error_distance(attained, certificate.unit_cost).tolist()
        rows = [f"{index},{distance}" for index, distance in enumerate(distances)]
        return "\n".join(["sample,attained_error_distance", *rows, ""])
    fresh = bool(certificate.dual_values)
    require(fresh, "certificate", "be fresh: one that was read has no samples", "one from a file")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "rho gamma sample phi_bar rule attained_loss certified_radius attained_error_distance"
    writer.writerow(names.split())
    for bracket in certificate.curve():
        level = next(level for level in certificate.dual_values if level.gamma == bracket.gamma)
        rules = [Rule(code).name.lower() for code in level.rule.tolist()]
        columns = [level.bound.tolist(), rules, level.loss.tolist()]
        for costs in (certificate.proven_error_cost, certificate.attained_error_cost):
            blank = [""] * len(level.bound)
            columns.append(blank if costs is None else error_distance(costs, certificate.unit_cost).tolist())
        for index, cells in enumerate(zip(*columns, strict=True)):
            writer.writerow([bracket.rho, bracket.gamma, index, *cells])
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
