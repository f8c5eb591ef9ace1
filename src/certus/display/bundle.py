"""Evidence bundles: a certificate with everything that checks it again, as one zip file.

The same run and certificate make the same bytes: entries are sorted, and carry no time.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from certus._format import at_least, at_most
from certus.bounds.smoothness import format_assumptions
from certus.certificates.certificate import Certificate
from certus.certificates.class_rates import class_names
from certus.display.tables import error_name, units_of
from certus.kernel.smoothing import PREMISES
from certus.smoothing.certificate import SmoothedCertificate

FOLDER = "certificate"
CARD, MANIFEST, README, REPORT = "MODEL_CARD.md", "manifest.json", "README.md", "report.html"
_START = (1980, 1, 1, 0, 0, 0)  # the first time that zip files can hold


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return a zip file whose bytes depend on names and contents alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _START)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=9)
    return buffer.getvalue()


def check_command(certificate: Certificate | SmoothedCertificate, *, rows: bool) -> str:
    """The command that checks a certificate of a bundle, in the folder that it was unzipped to."""
    if isinstance(certificate, SmoothedCertificate):
        return f"certus verify {FOLDER}/smoothing.json"
    return f"python -m certus.kernel {FOLDER}" + ("" if rows else " --data ROWS.safetensors")


def manifest(
    certificate: Certificate | SmoothedCertificate,
    files: Mapping[str, bytes],
    *,
    model: Mapping[str, Any],
    rows: bool,
) -> bytes:
    """Digests of all files, of the data and the weights, the environment, and the command of the check."""
    about = certificate.about
    content = {
        "schema_version": 1,
        "command": check_command(certificate, rows=rows),
        "rows_included": rows,
        "files": {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
        "data": {"source": about.get("data"), "rows": about.get("rows"), "digests": about.get("digests")},
        "model": dict(model),
        "settings": about.get("settings"),
        "environment": about.get("environment")
        or {name: about[name] for name in ("certus_version", "torch_version") if name in about},
    }
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def readme(certificate: Certificate | SmoothedCertificate, names: Sequence[str], *, rows: bool) -> bytes:
    """Return the README of a bundle: its contents, and the commands that check it."""
    contents = {
        f"{FOLDER}/certificate.json": "the certificate: every number, and the values of gamma that prove it",
        f"{FOLDER}/smoothing.json": "the certificate by randomised smoothing",
        f"{FOLDER}/smoothing.safetensors": "the table of predictions in noise that it is proven from",
        f"{FOLDER}/graph.json": "the network, the cost, the loss and the domain, as certified",
        f"{FOLDER}/graph.safetensors": "their numbers",
        f"{FOLDER}/witnesses.safetensors": "what the kernel needs to prove the certificate again",
        f"{FOLDER}/rows.safetensors": "the certified rows",
        f"{FOLDER}/samples.csv": "bounds and rules by sample",
        CARD: "the model card",
        REPORT: "the report, to be read in a browser",
        MANIFEST: "digests of files, data and weights, the environment, and the settings",
    }
    listed = "\n".join(f"- `{name}`: {words}" for name, words in contents.items() if name in names)
    version = certificate.about.get("certus_version", "")
    missing = (
        ""
        if rows or isinstance(certificate, SmoothedCertificate)
        else "\n`ROWS.safetensors` are the certified rows, which this bundle does not include: its tensors "
        "are `inputs` and `targets`. Owners of the data make them with `certus bundle RUN --include-data`.\n"
    )
    return (
        f"# Evidence bundle\n\n{listed}\n\n## Check it\n\nIn an empty folder, with Python and certus"
        f"{f' {version}' if version else ''}:\n\n    unzip evidence.zip\n"
        f"    {check_command(certificate, rows=rows)}\n{missing}\n"
        "Exit code 0: every upper bound follows. 1: a number does not. 2: nothing could be checked. The "
        "check reads plain data, executes nothing from the bundle, and runs no search. Lower bounds are not "
        "checked, nor whether the stored network computes a given model.\n"
    ).encode()


def _scalar(value: Any) -> str:
    """A scalar of YAML, of which JSON is a part."""
    return json.dumps(value, ensure_ascii=False)


def model_card(
    certificate: Certificate | SmoothedCertificate,
    *,
    name: str,
    model: Mapping[str, Any],
    measured: Mapping[str, float],
    author: str = "",
    purpose: str = "",
) -> bytes:
    """Markdown with a YAML header, as model registries read it.

    Args:
        model: properties of the model, in words; measured: metrics on the data as they are.
    """
    about, labelled = certificate.about, getattr(certificate, "classes", 2) is not None
    data = str(about.get("data", "the certified samples"))
    task = "tabular-classification" if labelled else "tabular-regression"
    metrics = [(each, value, "measured") for each, value in measured.items()]
    metrics += [(key, value, evidence) for key, value, evidence in _bounds(certificate)]
    header = [
        "---",
        "library_name: certus",
        "tags: [robustness, certified, wasserstein]",
        f"datasets: [{_scalar(data)}]",
        "model-index:",
        f"- name: {_scalar(name)}",
        "  results:",
        f"  - task: {{type: {task}}}",
        f"    dataset: {{name: {_scalar(data)}, type: {_scalar(data)}}}",
        "    metrics:",
        *(
            f"    - {{type: {_scalar(key)}, value: {_scalar(value)}, name: {_scalar(evidence)}}}"
            for key, value, evidence in metrics
        ),
        "---",
    ]
    lines = [f"# {name}", ""]
    lines += [f"- {key}: {value}" for key, value in {"Author": author, "Purpose": purpose}.items() if value]
    lines += [f"- {key}: {value}" for key, value in model.items()]
    rows = about.get("rows")
    lines += [
        "",
        "## Data",
        "",
        f"Certified: {rows['words'] if rows else f'{certificate.samples:,} samples'}.",
    ]
    lines += [f"Distances are in {units_of(certificate)}."] if isinstance(certificate, Certificate) else []
    lines += ["", "## Measured", "", *(f"- {key}: {value:.4g}" for key, value in measured.items())]
    lines += ["", "## Proven", "", *_table(certificate), "", *_limits(certificate)]
    return ("\n".join([*header, "", *lines]) + "\n").encode()


def _bounds(certificate: Certificate | SmoothedCertificate) -> list[tuple[str, float, str]]:
    """Names, values and evidence of the bounds of a certificate."""
    evidence = str(certificate.evidence)
    if isinstance(certificate, SmoothedCertificate):
        words = f"{evidence}, confidence {certificate.confidence:g}"
        return [
            (f"worst {quantity.name}, rho {rho:g}", quantity.high(rho), words)
            for quantity in certificate.quantities
            for rho in certificate.rhos
        ]
    lines: list[tuple[str, float | None, str]] = []
    for bracket in certificate.curve():
        at = f"rho {bracket.rho:g}"
        lines += [(f"worst loss, {at}", bracket.loss_high, evidence)]
        lines += [(f"worst {error_name(certificate.labels)}, {at}", bracket.error_high, evidence)]
        if certificate.population is not None:
            words = f"{evidence}, confidence {certificate.population.confidence:g}"
            lines += [(f"worst population loss, {at}", bracket.population_loss, words)]
            lines += [(f"worst population error, {at}", bracket.population_error, words)]
    names = class_names(certificate)
    for rate in certificate.rates:
        of = "" if rate.label is None else f" of {names[rate.label]}"
        lines += [(f"worst {rate.name}{of}, rho {rate.rho:g}", rate.proven, evidence)]
    for accuracy in certificate.accuracies():
        lines += [(f"certified accuracy, epsilon {accuracy.epsilon:g}", accuracy.certified, evidence)]
    return [(key, value, words) for key, value, words in lines if value is not None and math.isfinite(value)]


def _table(certificate: Certificate | SmoothedCertificate) -> list[str]:
    """A Markdown table of the bounds."""
    rows = []
    for key, value, evidence in _bounds(certificate):
        least = "recall" in key or "accuracy" in key
        bound = f"at least {at_least(value)}" if least else f"at most {at_most(value)}"
        rows.append(f"| {key.replace('|', '/')} | {bound} | {evidence} |")
    if not rows:
        return ["No upper bound is proven."]
    return ["| quantity | bound | evidence |", "|---|---|---|", *rows]


def _limits(certificate: Certificate | SmoothedCertificate) -> list[str]:
    """Return the limits of the bounds, as sentences."""
    if isinstance(certificate, SmoothedCertificate):
        return [f"The bounds are about the model with noise on its inputs. Premises: {'; '.join(PREMISES)}."]
    model = "the real-valued model with the stored weights, not about the rounding of a deployment"
    if certificate.deployment is not None:
        model = f"the model as {certificate.deployment} computes it, in any order of summation"
    limits = [
        "A bound holds for every distribution within mean transport cost rho of the certified rows. It is "
        f"about {model}, and "
        "about shifts of inputs: labels stay, and a change of what inputs mean is not covered."
    ]
    if certificate.labels == "predicted":
        limits.append("Labels are the model's own predictions: an error is a prediction that changes.")
    if certificate.assumptions:
        limits.append(format_assumptions(certificate.assumptions))
    return limits
