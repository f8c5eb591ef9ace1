"""Certificates as files: ``certificate.json`` with digests, and a table of samples."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.bounds.smoothness import validity_statement
from certus.certificates.aggregate import Line, Push
from certus.certificates.batching import repeat_words
from certus.certificates.cache import differences
from certus.certificates.certificate import Certificate
from certus.certificates.population import Move, Population
from certus.certificates.proven.concentration import INEQUALITIES
from certus.certificates.proven.duality_gap import Rule
from certus.errors import (
    CertusError,
    ContradictionError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_seed,
)
from certus.storage.files import CorruptFileError, RunError, read_json
from certus.storage.write import add_checksum, require_no_booleans, verify_checksum, without_checksum

CERTIFICATE_VERSION = 6

OWN_LABELS = (
    "The labels are the model's own predictions on the unmoved samples. An error is therefore a prediction "
    "that changes, not one that is wrong; nothing is said about how often the predictions are right."
)

NO_PROOF_VALIDITY = (
    "Nothing is proven. What is attained was computed with the model itself, in floating point, at points "
    "that attacks found."
)

ERRORS_ALONE = "Nothing is proven of the loss; of the error rate an upper side is."


def as_json(certificate: Certificate) -> dict[str, Any]:
    """Everything that the certificate says, as JSON with a digest of its own; infinities become None."""
    content = {
        "schema_version": CERTIFICATE_VERSION,
        "evidence": certificate.evidence,
        "assumptions": certificate.assumptions,
        "validity": validity_statement(certificate.assumptions),
        "about": certificate.about,
        "samples": certificate.samples,
        "classes": certificate.classes,
        "unit_price": certificate.unit_price,
        "clip": certificate.clip,
        "start": certificate.start,
        "rhos": certificate.rhos,
        "epsilons": certificate.epsilons,
        "brackets": [asdict(bracket) for bracket in certificate.curve()],
        "accuracies": [asdict(accuracy) for accuracy in certificate.accuracies()],
        "population": _population(certificate.population, certificate.samples),
        "lines": [asdict(line) for line in certificate.lines],
        "pushes": [asdict(push) for push in certificate.pushes],
        "error_floor": _listed(certificate.error_floor),
        "error_found": _listed(certificate.error_found),
    }
    if certificate.weights is not None:
        content["weights"] = _listed(certificate.weights)
    if certificate.class_weights is not None:
        content["class_weights"] = certificate.class_weights
    if certificate.differing:
        content["differing_predictions"] = certificate.differing
    if certificate.labels == "predicted":
        content |= {"labels": "predicted", "labels_statement": OWN_LABELS}
    if certificate.no_proof is not None:
        known = certificate.error_floor is not None
        validity = f"{ERRORS_ALONE} {content['validity']}" if known else NO_PROOF_VALIDITY
        content |= {"no_proof": certificate.no_proof, "validity": validity}
    return add_checksum(_plain(content))


def read_certificate(path: Path) -> Certificate:
    """The certificate in a JSON file, checked: its digest, its kinds, and that its brackets follow from the
    rest."""
    content = read_content(path)
    try:
        found = _certificate(content)
        told = as_json(found)
    except ContradictionError as reason:
        raise ContradictionError(f"{path}: {reason}") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        RuntimeError,
        CertusError,
    ) as reason:
        line = " ".join(str(reason).split()) or type(reason).__name__
        raise CorruptFileError(
            f"{path} is corrupt: it lacks something, or has it of another kind: {line}."
        ) from None
    if different := differences(content, without_checksum(told)):
        raise CorruptFileError(
            f"{path} is corrupt: what it says does not follow from its lines: {different[0]}."
        )
    return found


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
    verify_checksum(content, path)
    return without_checksum(content)


def _certificate(content: dict[str, Any]) -> Certificate:
    people = content["population"]
    population = None
    require_no_booleans({name: value for name, value in content.items() if name != "about"})
    require(isinstance(content["about"], dict), "about", "be an object", content["about"])
    require_number("unit_price", content["unit_price"])
    if content["clip"] is not None:
        require_number("clip", content["clip"])
    if content["classes"] is not None:
        require_count("classes", content["classes"], 2)
    for line in content["lines"]:
        require(isinstance(line["rules"], dict), "rules", "be an object", line["rules"])
    if people is not None:
        _check_population(people, content["classes"])
        require_count("repeats", people.get("repeats", 0), least=0)
        moves = {entry["gamma"]: Move(entry["cost"], entry["loss"]) for entry in people["grid"]}
        population = Population(
            confidence=people["confidence"],
            seed=people["seed"],
            clip=people["clip"],
            inequality=people["inequality"],
            means={entry["gamma"]: entry["mean"] for entry in people["grid"]},
            start=people["start"],
            moves=moves,
            error_means={entry["gamma"]: entry["mean"] for entry in people["error_grid"]},
            error_margin=people["error_margin"],
            error_margin_low=people["error_margin_low"],
            error_found=_tensor(people["error_found"]),
            repeats=people.get("repeats", 0),
        )
    low, high = content["start"]
    samples, assumptions = content["samples"], content["assumptions"]
    words = isinstance(assumptions, list) and all(isinstance(name, str) for name in assumptions)
    require(words, "assumptions", "be a list of names", assumptions)
    require_count("samples", samples)
    for name in ("error_floor", "error_found", "weights"):
        costs = content.get(name)
        require(costs is None or len(costs) == samples, name, f"be of {samples} samples", len(costs or ()))
    counts = None if (known := content.get("class_weights")) is None else tuple(map(float, known))
    alike = counts is None or len(counts) == content["classes"]
    require(alike, "class_weights", f"be of {content['classes']} classes", known)
    differing = content.get("differing_predictions", 0)
    require_count("differing_predictions", differing, least=0)
    require(differing <= samples, "differing_predictions", f"be at most {samples}", differing)
    labels, asked = content.get("labels", "given"), content["about"].get("settings")
    own = asked.get("predicted") if isinstance(asked, dict) else None
    legal = ("given", "predicted") if own is None else ("predicted",) if own is True else ("given",)
    require(labels in legal, "labels", f"be {' or '.join(legal)}", labels)
    unproven = content.get("no_proof")
    require(unproven is None or isinstance(unproven, str), "no_proof", "be words", unproven)
    require(bool(content["lines"]) == (unproven is None), "lines", "be there, or no proof", content["lines"])
    high = math.inf if unproven is not None and high is None else high
    return Certificate(
        rhos=tuple(content["rhos"]),
        epsilons=tuple(content["epsilons"]),
        lines=tuple(Line(**_unbounded(entry)) for entry in content["lines"]),
        pushes=tuple(Push(**entry) for entry in content["pushes"]),
        start=(low, high),
        error_floor=_tensor(content["error_floor"]),
        error_found=_tensor(content["error_found"]),
        population=population,
        assumptions=tuple(assumptions),
        no_proof=unproven,
        weights=_tensor(content.get("weights")),
        class_weights=counts,
        differing=differing,
        labels=labels,
        **{name: content[name] for name in ("samples", "classes", "unit_price", "clip", "about")},
    )


def _check_population(people: dict[str, Any], classes: int | None) -> None:
    """Raise ``ArgumentError`` for an entry that no population has."""
    known = people["inequality"] in INEQUALITIES
    require(known, "inequality", f"be one of {', '.join(INEQUALITIES)}", people["inequality"])
    require_confidence(people["confidence"])
    require_seed(people["seed"])
    require_number("clip", people["clip"])
    for entry in people["grid"]:
        require_number("gamma", entry["gamma"])
        require_number("cost", entry["cost"], zero=True)
    for entry in people["error_grid"]:
        require_number("gamma", entry["gamma"])
    for name in ("error_margin", "error_margin_low", "error_found"):
        there, wanted = people[name] is not None, classes is not None
        require(there == wanted, name, "be there for labels, and only then", people[name])
    for name in ("error_margin", "error_margin_low") if classes is not None else ():
        require_number(name, people[name], zero=True)


def _unbounded(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose bound was ∞, as a regression has them at small γ."""
    return line | {"bound": math.inf} if line["bound"] is None else line


def _population(population: Population | None, samples: int) -> dict[str, Any] | None:
    if population is None:
        return None
    content = {
        "confidence": population.confidence,
        "seed": population.seed,
        "clip": population.clip,
        "inequality": population.inequality,
        "statement": (
            f"With probability at least {population.confidence:g} over {samples} independent draws, taken in "
            f"the random order of seed {population.seed}, the worst loss, clipped at {population.clip:g}, "
            "and the worst error rate, if any, around the distribution that they were drawn from lie within "
            f"these bounds for all rho at once.{repeat_words(population.repeats, samples)}"
        ),
        "start": population.start,
        "grid": [
            {
                "gamma": gamma,
                "mean": mean,
                "cost": population.moves[gamma].cost,
                "loss": population.moves[gamma].loss,
            }
            for gamma, mean in population.means.items()
        ],
        "error_grid": [{"gamma": gamma, "mean": mean} for gamma, mean in population.error_means.items()],
        "error_margin": population.error_margin,
        "error_margin_low": population.error_margin_low,
        "error_found": _listed(population.error_found),
    }
    return content | ({"repeats": population.repeats} if population.repeats else {})


def _listed(values: Tensor | None) -> list[float] | None:
    return None if values is None else values.tolist()


def _tensor(values: list[float | None] | None) -> Tensor | None:
    """What ``_listed`` was given; None stands for ∞."""
    if values is None:
        return None
    return torch.tensor([math.inf if value is None else value for value in values], dtype=torch.float64)


def sample_table(certificate: Certificate) -> str:
    """CSV: for each ρ asked for and each sample φ̄ at its best γ, the rule, and the distances to an error."""
    if certificate.no_proof is not None:
        return _found_table(certificate)
    require(
        bool(certificate.levels),
        "certificate",
        "be fresh: one that was read has no samples",
        "one from a file",
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["rho", "gamma", "sample", "phi_bar", "rule", "loss_found", "certified_radius", "error_found_at"]
    )
    for bracket in certificate.curve():
        level = next(level for level in certificate.levels if level.gamma == bracket.gamma)
        columns = [
            level.bound.tolist(),
            [Rule(code).name.lower() for code in level.rule.tolist()],
            level.loss.tolist(),
        ]
        for costs in (certificate.error_floor, certificate.error_found):
            blank = [""] * len(level.bound)
            columns.append(blank if costs is None else (costs / certificate.unit_price).sqrt().tolist())
        for index, cells in enumerate(zip(*columns, strict=True)):
            writer.writerow([bracket.rho, bracket.gamma, index, *cells])
    return text.getvalue()


def _found_table(certificate: Certificate) -> str:
    """CSV without a proof: how far each sample is from an error that was found."""
    found = certificate.error_found
    distances = [] if found is None else (found / certificate.unit_price).sqrt().tolist()
    rows = [f"{index},{distance}" for index, distance in enumerate(distances)]
    return "\n".join(["sample,error_found_at", *rows, ""])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
