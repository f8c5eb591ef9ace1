"""Predictions for new rows, with proven radii.

The radius of a row is proven: no input nearer than that, in the norm of the run's cost, has another label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from certus.certificates import certify
from certus.certificates.error_costs import error_distance
from certus.datasets.new_data import NewRows, load_like, new_rows, new_table
from certus.errors import ArgumentError
from certus.losses import predicted
from certus.runs.loaded_run import LoadedRun, named_split
from certus.table_options import TABLES, TableOptions

_BATCH = 1024
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet"}


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for n rows; entries that a classification or a regression does not have are None."""

    labels: tuple[str, ...] | None  # names of the predicted classes
    probabilities: Tensor | None  # (n, classes) the softmax of the outputs
    values: Tensor | None  # (n,) predictions of a regression in the target's units
    radii: Tensor | None  # (n,) proven, in the norm of the run's cost; None if not asked for
    right: float | None  # share of labels that agree with the target column, if there is one


def read_rows(trained: LoadedRun, spec: str, options: TableOptions | None = None) -> NewRows:
    """Read a CSV or Parquet file, or a data set as ``load`` takes it, in the encoding of the run.

    Args:
        options: of the file, if it is written otherwise than the run's own.
    """
    prefix = _SUFFIXES.get(Path(spec).suffix.lower())
    if ":" not in spec and prefix is not None:
        spec = f"{prefix}:{spec}"
    if trained.data.recipe is not None:
        if not spec.startswith(TABLES):
            raise ArgumentError(f"`data` must be a CSV or Parquet file, as the run's own data; got {spec!r}.")
        options = options or trained.settings.table
        return new_rows(trained.data, new_table(trained.data, spec, options), options)
    samples = named_split(load_like(trained.data, spec, seed=trained.settings.seed), "all")
    return NewRows(samples.inputs, samples.targets, ())


def predict_rows(trained: LoadedRun, rows: NewRows, reach: float | None) -> Predictions:
    """Predict every row; with ``reach``, the largest radius of interest, radii are proven too."""
    model, data = trained.loss.model, trained.data
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in rows.inputs.split(_BATCH)])
    if data.classes is None:
        mean, scale = data.target_scale or (0.0, 1.0)
        return Predictions(None, None, outputs.double().flatten() * scale + mean, None, None)
    codes = predicted(outputs)
    names = data.class_names or tuple(map(str, range(data.classes)))
    right = None if rows.targets is None else float((codes == rows.targets).double().mean())
    labels, radii = tuple(names[code] for code in codes.tolist()), None
    if reach is not None:
        certificate = certify(
            model,
            (rows.inputs, None),
            epsilon=reach,
            cost=trained.cost,
            domain=trained.domain,
            gammas=(1.0,),
            gamma_rounds=0,
            attack_steps=0,
            progress=False,
        )
        assert certificate.proven_error_cost is not None  # it has classes
        # The floor is a cost, rounded down; a last bit is given up for the root.
        radii = error_distance(certificate.proven_error_cost, certificate.unit_cost) * (1 - 1e-15)
    return Predictions(labels, outputs.double().softmax(1), None, radii, right)
