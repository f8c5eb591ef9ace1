"""The certified rows that new rows are compared with, and the cost and the domain of the certificate.

The rows are those of a fresh certificate, those stored beside one (``include_data``), those of its run, or
given by the caller; a digest shows that they are the certified ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.bounds.analysis import kernel_cost
from certus.certificates.certificate import Certificate
from certus.certificates.files import read_content
from certus.certificates.graph_files import GRAPH
from certus.certificates.problem import gather
from certus.data import DataLike
from certus.datasets import SplitDataset
from certus.errors import ArgumentError, UnsupportedError, require
from certus.kernel.check import ROWS, digest_rows, sibling
from certus.kernel.costs import Cost, Domain
from certus.kernel.files import build_problem, parse_object, parse_tensors, read_bytes
from certus.runs.certification import certified_data
from certus.runs.loaded_run import LoadedRun, load_run
from certus.runs.serialization import deserialize
from certus.runs.settings import CertifySettings
from certus.runs.verification import certified_folder
from certus.storage.files import RunError, convert
from certus.storage.tensors import digest
from certus.table_options import TableOptions


@dataclass(frozen=True, eq=False)
class Reference:
    """Certified rows, as the model takes them.

    Attributes:
        inputs, targets: (n, *shape) float64 and (n,).
        cost, domain, groups: of the certificate, as data of the kernel; groups are the inputs of discrete
            columns, where it is about rows of a table alone.
        trained: the run that the certificate is about; None without one. about: its settings and
            digests. names: of columns, with their inputs, where there is no run to name them.
        reading: options of new tables, where they are not those of the run.
    """

    inputs: Tensor
    targets: Tensor
    cost: Cost
    domain: Domain
    groups: tuple[tuple[int, ...], ...] = ()
    trained: LoadedRun | None = None
    about: dict[str, Any] = field(default_factory=dict)
    names: dict[str, list[int]] = field(default_factory=dict)
    reading: TableOptions | None = None

    @property
    def table_options(self) -> TableOptions:
        """The options of new tables: ``reading``, or else those of the run."""
        own = TableOptions() if self.trained is None else self.trained.settings.table
        return own if self.reading is None else self.reading

    @property
    def data(self) -> SplitDataset | None:
        """The data of the run, whose recipe encodes new rows."""
        return None if self.trained is None else self.trained.data

    def inside(self, inputs: Tensor) -> Tensor:
        """(m,) whether rows lie in the domain of the certificate."""
        domain, flat = self.domain, inputs.double().flatten(1)
        low, high = (side.expand(inputs.shape[1:]).flatten() for side in (domain.lower, domain.upper))
        inside = ((flat >= low) & (flat <= high)).all(1)
        if domain.center is not None:
            inside &= (flat - domain.center.expand(inputs.shape[1:]).flatten()).norm(dim=1) <= domain.radius
        for group in self.groups:
            part = inputs[:, list(group)]
            inside &= ((part == 0) | (part == 1)).all(1) & (part.sum(1) <= 1)
        return inside


def reference_of(
    certificate: Certificate, given: DataLike | None = None, trained: LoadedRun | None = None
) -> Reference:
    """Collect the reference; raise ``ArgumentError`` where rows are missing, or are not the
    certified ones."""
    if certificate.weights is not None:
        raise UnsupportedError(
            "Certificates with weights of samples cannot be monitored: their rows count unequally."
        )
    if certificate.source is not None:
        rows = certificate.source.transported(None)
        if given is not None:
            own = gather(given)
            same = own[0].shape == rows.inputs.shape and torch.equal(own[0], rows.inputs.double())
            require(same, "reference", "be the certified rows, or be left out", f"{len(own[0])} other rows")
        return Reference(
            rows.inputs.double(), rows.targets, *certificate.source.geometry(), trained, certificate.about
        )
    if certificate.file is None:
        raise ArgumentError("`certificate` must have its rows, or a file; this one was altered.")
    content = read_content(certificate.file)
    trained = _run_of(certificate) if trained is None else trained
    inputs, targets = _rows(certificate, given, trained)
    known = content["check"].get("rows")
    if known is not None and targets is not None:
        same = digest_rows(inputs, targets) == known
        require(same, "reference", "be the certified rows: their digest differs", f"{len(inputs)} rows")
    require(
        len(inputs) == certificate.samples,
        "reference",
        f"be the {certificate.samples} certified rows",
        len(inputs),
    )
    targets = torch.zeros(len(inputs)) if targets is None else targets
    return Reference(inputs, targets, *_geometry(certificate, inputs, targets), trained, certificate.about)


def _run_of(certificate: Certificate) -> LoadedRun | None:
    """Open the run that a stored certificate names; None without one, or if it needs a file of its own."""
    about, file = certificate.about, certificate.file
    if "run" not in about or file is None:
        return None
    weights = about["digests"]["weights"]
    try:
        trained = load_run(certified_folder(file, Path(about["run"]), weights))
    except (RunError, ArgumentError, OSError):
        return None
    return trained if digest(dict(trained.model.state_dict())) == weights else None


def _rows(
    certificate: Certificate, given: DataLike | None, trained: LoadedRun | None
) -> tuple[Tensor, Tensor | None]:
    assert certificate.file is not None
    stored = sibling(certificate.file, ROWS)
    if given is not None:
        return gather(given)
    if stored.exists():
        tensors = parse_tensors(read_bytes(stored))
        return tensors["inputs"].double(), tensors["targets"]
    if trained is None:
        raise ArgumentError(
            "`reference` must be the certified rows: they are neither stored with the certificate "
            "(include_data=True, or certus certify --include-data) nor is its run here."
        )
    return gather(certified_data(trained, convert(certificate.about["settings"], CertifySettings)).data)


def _geometry(
    certificate: Certificate, inputs: Tensor, targets: Tensor
) -> tuple[Cost, Domain, tuple[tuple[int, ...], ...]]:
    """Cost, domain and discrete columns of a stored certificate, of its run's settings or of the network
    stored beside it."""
    about, file = certificate.about, certificate.file
    assert file is not None
    graph = sibling(file, GRAPH)
    description = parse_object(read_bytes(graph)) if graph.exists() else {}
    groups = tuple(tuple(map(int, group)) for group in description.get("columns", []))
    require(
        not certificate.over_rows or len(groups) > 0, "certificate", f"have {graph.name} beside it", "none"
    )
    if "cost" in about and "domain" in about:
        cost = kernel_cost(deserialize(about["cost"]), tuple(inputs.shape[1:]))
        price = about["settings"].get("label_cost")
        cost = replace(cost, label_price=math.inf if price is None else float(price))
        return cost, deserialize(about["domain"]).kernel(), groups
    if not description:
        raise UnsupportedError(f"{file} does not say which cost it is for: certify again.")
    tensors: dict[str, Any] = parse_tensors(read_bytes(sibling(file, "graph.safetensors")))
    problem = build_problem(description, tensors, (inputs, targets))
    return problem.cost, problem.domain, groups
