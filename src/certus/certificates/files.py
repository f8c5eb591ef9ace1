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

import numpy as np
import torch
from msgspec import Meta, Struct
from safetensors.torch import save
from torch import Tensor

from certus.bounds.smoothness import validity_statement
from certus.certificates.batching import repeat_words
from certus.certificates.cache import differences
from certus.certificates.certificate import Certificate
from certus.certificates.class_rates import cost_limits, stored_costs
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
from certus.kernel import problem as trusted
from certus.kernel.check import FILES, ROWS, Checked, NotProven, check, digest_rows, sibling
from certus.kernel.error_rates import ClassCosts, dual_bound
from certus.kernel.files import parse_object, read_bytes
from certus.kernel.passes import Refused
from certus.kernel.rules import Rule
from certus.kernel.statement import PopulationBounds, Statement
from certus.kernel.tree_profiles import TreeProblem
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
    plain_json,
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

ROWS_STATEMENT = (
    "Samples move to rows of the table: numbers move freely, and a category, or the mark of a missing value, "
    "changes as a whole at its price."
)

FLOAT32_STATEMENT = (
    "Upper sides are about the network as float32 computes it, in any order of summation: margins are "
    "reduced by the largest error of such arithmetic. Winograd and FFT convolutions, TF32, bfloat16, tensor "
    "cores, int8 and fast-math are not covered."
)

NO_PROOF_VALIDITY = (
    "Nothing is proven. Attained values were computed with the model itself, in floating point, at points "
    "that attacks found."
)

ERRORS_ALONE = "The error rate has a proven upper bound, the loss has none."


_PLAIN = ("about", "samples", "classes", "unit_cost", "clip")
_ERROR_COSTS = ("proven_error_cost", "attained_error_cost")
_OF_POPULATION = ("confidence", "seed", "clip", "inequality")
_FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError)


def as_json(certificate: Certificate) -> dict[str, Any]:
    """Return the content of a certificate as JSON with its checksum; infinities become None."""
    content: dict[str, Any] = {
        "schema_version": CERTIFICATE_VERSION,
        "evidence": certificate.evidence,
        "assumptions": certificate.assumptions,
        "validity": validity_statement(certificate.assumptions),
        **{name: getattr(certificate, name) for name in (*_PLAIN, "clean_loss", "rhos", "epsilons")},
        "brackets": certificate.curve(),
        "accuracies": certificate.accuracies(),
        "population": _population(certificate.population, certificate.samples),
        "aggregates": [
            asdict(line) | {"bound": certificate.statement.means.get(line.gamma, math.inf)}
            for line in certificate.aggregates
        ],
        "attacks": certificate.attacks,
        **{name: getattr(certificate, name) for name in _ERROR_COSTS},
    }
    if (by_class := certificate.statement.by_class) is not None:
        content |= {
            "targets": by_class.targets,
            "class_costs": stored_costs(certificate),
            "attained_label": certificate.attained_label,
            "rates": certificate.rates,
        }
    for name in ("weights", "class_weights", "differing_predictions"):
        value = getattr(certificate, name)
        if isinstance(value, Tensor) or value:
            content[name] = value
    if certificate.labels == "predicted":
        content |= {"labels": "predicted", "labels_statement": PREDICTED_LABELS_STATEMENT}
    if certificate.over_rows:
        content |= {"over_rows": True, "rows_statement": ROWS_STATEMENT}
    if certificate.deployment is not None:
        validity = f"{validity_statement(certificate.assumptions)} {FLOAT32_STATEMENT}"
        content |= {"deployment": certificate.deployment, "validity": validity}
    if certificate.no_proof is not None:
        has_error_bound = certificate.proven_error_cost is not None
        validity = f"{ERRORS_ALONE} {content['validity']}" if has_error_bound else NO_PROOF_VALIDITY
        content |= {"no_proof": certificate.no_proof, "validity": validity}
    return add_checksum(plain_json(content))


def write_certificate(certificate: Certificate, path: Path, *, include_data: bool = False) -> None:
    """Write ``certificate.json`` and the files beside it, which it names by their digests."""
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
    """Return the content of all files of a certificate by name; the file ``name`` comes last."""
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
    """Return the γ that prove a bound at a requested ρ, for the sample or the population."""
    statement, population, rhos = certificate.statement, certificate.population, certificate.rhos
    gammas = [statement.loss(rho)[1] for rho in rhos]
    if population is not None:
        means = population.upper.means
        gammas += [min(means, key=lambda gamma: dual_bound({gamma: means[gamma]}, rho)) for rho in rhos]
    if "shard" in certificate.about.get("settings", {}):
        # Parts are merged at a common γ, which may be a neighbour of the best one of a part.
        grid = sorted(statement.means)
        places = [grid.index(gamma) for gamma in gammas if gamma in statement.means]
        gammas += [grid[near] for place in places for near in (place - 1, place + 1) if 0 <= near < len(grid)]
    return list(dict.fromkeys(gammas))


def _check_files(certificate: Certificate, *, include_data: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files that the kernel checks a certificate from, and the entry about them."""
    if certificate.source is None or certificate.no_proof is not None:
        raise UnsupportedError("nothing is proven about this loss, so no witnesses are stored.")
    gammas, costs = used_gammas(certificate), certificate.proven_error_cost
    problem, witnesses = certificate.source.witnesses(gammas, cost_limits(certificate))
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
        "rows": digest_rows(_inputs(problem), problem.targets),
    }
    if include_data:
        rows = {"inputs": _inputs(problem), "targets": problem.targets}
        files[ROWS] = _row_bytes(rows if weights is None else rows | {"weights": weights})
    return files, check


def _row_bytes(rows: dict[str, Tensor]) -> bytes:
    """Content of a file of rows, with inputs of float32 where that loses nothing."""
    inputs = rows["inputs"]
    single = inputs.float()
    same = torch.equal(single.double().nan_to_num(0.5), inputs.double().nan_to_num(0.5))
    rows = rows | {"inputs": single if same else inputs}
    return save({name: part.contiguous() for name, part in rows.items()})


def certified_rows(certificate: Certificate, data: DataLike) -> bytes:
    """Return the file of the certified samples that the kernel checks a loaded certificate with.

    Raises ``UnsupportedError`` for other samples, and for a certificate that cannot be checked.
    """
    assert certificate.file is not None
    rows, check = given_rows(certificate, data), read_content(certificate.file).get("check", {})
    if "reason" in check:
        raise UnsupportedError(f"{certificate.file}: {check['reason']}")
    if digest_rows(rows["inputs"], rows["targets"]) != check.get("rows"):
        raise UnsupportedError(f"{certificate.file}: the rows are not those of the certificate.")
    return _row_bytes(rows)


def _inputs(problem: trusted.Problem | TreeProblem) -> Tensor:
    """(n, …) rows as the model takes them, NaN where a value of a tree model's row is missing."""
    return problem.rows if isinstance(problem, TreeProblem) else problem.inputs


def check_certificate(certificate: Certificate, data: DataLike | Path | None = None) -> Checked:
    """Check a loaded certificate by the kernel.

    Args:
        data: the certified samples, or a file with them, unless they are included.

    Raises ``VerificationError`` if a claim is not proven, ``UnsupportedError`` if nothing can be checked.
    """
    file = certificate.file
    if file is None:
        raise ArgumentError("Only a certificate that was loaded from a file can be checked; this one is new.")
    try:
        return check(file, data if data is None or isinstance(data, Path) else given_rows(certificate, data))
    except NotProven as reason:
        raise VerificationError(f"{file} is not verified: {reason}.") from None
    except Refused as reason:
        raise UnsupportedError(f"{file}: {reason}.") from None


def verified_certificate(certificate: Certificate, data: DataLike | None = None) -> Certificate:
    """Check a loaded certificate by the kernel; see ``Certificate.verify``."""
    if certificate.file is None:
        return certificate
    return with_checked(certificate, check_certificate(certificate, data))


def with_checked(certificate: Certificate, checked: Checked) -> Certificate:
    """Return a loaded certificate with what the kernel proved; raise ``VerificationError`` if a number does
    not follow."""
    if failed := checked.failed:
        raise VerificationError(f"{certificate.file} is not verified: {failed[0].words}.")
    population = certificate.population
    if population is not None and checked.statement.population is not None:
        population = replace(population, upper=checked.statement.population)
    return replace(certificate, statement=checked.statement, population=population)


def given_rows(certificate: Certificate, data: DataLike) -> dict[str, Tensor]:
    """Return certified samples as the kernel takes them."""
    assert certificate.file is not None
    description = parse_object(read_bytes(sibling(certificate.file, FILES[0])))
    if "ensemble" in description:
        return _tree_rows(certificate, data)
    inputs, targets = gather(data)
    if targets is None or certificate.labels == "predicted":
        network = load_graph(certificate.file.parent, sibling(certificate.file, FILES[0]).name)
        with torch.no_grad():
            targets = predicted(network(inputs))
    elif certificate.classes is None:
        targets = targets.double()
    weights = data.weights if isinstance(data, Samples) else None
    rows = {"inputs": inputs, "targets": targets}
    return rows if weights is None else rows | {"weights": weights.detach().cpu().double()}


def _tree_rows(certificate: Certificate, data: Any) -> dict[str, Tensor]:
    """Rows of numbers, NaN where one is missing, with codes of labels or numbers."""
    if isinstance(data, Samples):
        inputs, targets, weights = data.inputs, data.targets, data.weights
    else:
        (inputs, targets), weights = data, None
    rule = "be rows with their labels as codes 0, 1, …, or numbers; save the certificate with include_data"
    require(targets is not None, "data", rule, "no targets")
    try:
        rows = torch.tensor(np.asarray(inputs, dtype=np.float64))
        kind = np.float64 if certificate.classes is None else np.int64
        labels = torch.tensor(np.asarray(targets).astype(kind, casting="same_kind"))
    except (TypeError, ValueError) as reason:
        raise ArgumentError(f"`data` must {rule}; {reason}.") from None
    return {"inputs": rows, "targets": labels} | ({} if weights is None else {"weights": weights.double()})


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
    """Read the JSON of a certificate, check its checksum, and remove it."""
    content = read_json(path)
    if not isinstance(content, dict) or "brackets" not in content:
        raise RunError(f"{path} is not a certificate.")
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
    """Types of the entries that a certificate is rebuilt from; all other entries must follow from these."""

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
    over_rows: bool = False
    deployment: Literal["float32"] | None = None
    labels: Literal["given", "predicted"] = "given"
    targets: list[Count] | None = None
    class_costs: list[_Costs] | None = None
    attained_label: list[Annotated[int, Meta(ge=-1)]] | None = None

    def __post_init__(self) -> None:
        for name in (*_ERROR_COSTS, "weights"):
            values = getattr(self, name)
            if values is not None and len(values) != self.samples:
                raise ValueError(f"Expected `{name}` of {self.samples} samples, got {len(values)}")
        for name in ("targets", "class_costs", "attained_label"):
            values = getattr(self, name)
            if values is not None and (self.classes is None or len(values) != self.samples):
                raise ValueError(f"Expected `{name}` of {self.samples} samples with labels")
        for values in (self.targets or (), self.attained_label or ()):
            if values and max(values) >= (self.classes or 0):
                raise ValueError(f"Expected labels below {self.classes}")
        if any(len(costs) != self.classes for costs in self.class_costs or ()):
            raise ValueError(f"Expected `class_costs` of {self.classes} classes")
        if self.class_costs is not None and (self.targets is None or self.classes == 2):
            raise ValueError("Expected `class_costs` for three classes and more, with `targets`")
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
    stated, population = content["population"], None
    if stated is not None:
        grid = stated["grid"]
        upper = PopulationBounds(
            means={entry["gamma"]: entry["mean"] for entry in grid if entry["mean"] is not None},
            error_means={entry["gamma"]: entry["mean"] for entry in stated["error_grid"]},
            error_margin=stated["error_margin"],
            assumptions=tuple(file.assumptions),
            **{name: stated[name] for name in _OF_POPULATION},
        )
        population = Population(
            upper,
            moves={entry["gamma"]: Move(entry["cost"], entry["loss"]) for entry in grid},
            attained_error_cost=_tensor(stated["attained_error_cost"]),
            repeats=stated.get("repeats", 0),
            **{name: stated[name] for name in ("clean_loss", "error_margin_low")},
        )
    errors, by_class = _tensor(content["proven_error_cost"]), None
    weights = _tensor(content.get("weights"))
    if file.targets is not None and errors is not None:
        rows = file.class_costs
        costs = None if rows is None else torch.stack([_required(row) for row in rows])
        by_class = ClassCosts.of(torch.tensor(file.targets), errors, file.classes or 0, costs, weights)
    low, high = content["clean_loss"]
    lines = content["aggregates"]
    statement = Statement(
        clean_loss=math.inf if high is None else high,
        # ∞ as a regression has it at small γ
        means={line["gamma"]: math.inf if line["bound"] is None else line["bound"] for line in lines},
        error_costs=errors,
        weights=weights,
        by_class=by_class,
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
        attained_label=None if file.attained_label is None else torch.tensor(file.attained_label),
        population=population,
        no_proof=file.no_proof,
        class_weights=None if file.class_weights is None else tuple(file.class_weights),
        differing_predictions=file.differing_predictions,
        over_rows=file.over_rows,
        deployment=file.deployment,
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


def _required(values: list[float | None]) -> Tensor:
    tensor = _tensor(values)
    assert tensor is not None
    return tensor


def _tensor(values: list[float | None] | None) -> Tensor | None:
    """(n,) values of a file, in which None stands for ∞."""
    if values is None:
        return None
    return torch.tensor([math.inf if value is None else value for value in values], dtype=torch.float64)


def sample_table(certificate: Certificate) -> str:
    """Return a CSV table: for each requested ρ and each sample φ̄ at the best γ, the rule, and distances to
    an error.

    Without a proof, only the distance of each sample to the nearest error found.
    """
    if certificate.no_proof is not None:
        attained = certificate.attained_error_cost
        distances = [] if attained is None else error_distance(attained, certificate.unit_cost).tolist()
        rows = [f"{index},{distance}" for index, distance in enumerate(distances)]
        return "\n".join(["sample,attained_error_distance", *rows, ""])
    fresh = bool(certificate.dual_values)
    require(fresh, "certificate", "be new: a loaded certificate has no samples", "a loaded one")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "rho gamma sample phi_bar rule attained_loss certified_radius attained_error_distance"
    writer.writerow(names.split())
    for bracket in certificate.curve():
        values = next(values for values in certificate.dual_values if values.gamma == bracket.gamma)
        rules = [Rule(code).name.lower() for code in values.rule.tolist()]
        columns = [values.bound.tolist(), rules, values.loss.tolist()]
        for costs in (certificate.proven_error_cost, certificate.attained_error_cost):
            blank = [""] * len(values.bound)
            columns.append(blank if costs is None else error_distance(costs, certificate.unit_cost).tolist())
        for index, cells in enumerate(zip(*columns, strict=True)):
            writer.writerow([bracket.rho, bracket.gamma, index, *cells])
    return text.getvalue()
