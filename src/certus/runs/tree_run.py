"""Runs of tree models: a model's file, and the table that it is certified on.

    RUN/trees.json   the settings, and digests of the model and of the table
    RUN/model        a copy of the model's file

Columns of the table are matched with those of the model by name, or in their order where the model has no
names. Distances are in standard deviations of the imported table; a change of category costs as much as one
of them. Missing values stay missing, and others present, where no cost of gaps is given.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

import certus
from certus._progress import ProgressFunction
from certus.bounds.trees import TreeModel, load_ensemble
from certus.certificates import Certificate
from certus.certificates.parallel import worker_count
from certus.certificates.trees import EncodedRows, certify_trees, tree_problem
from certus.costs import LabelCost
from certus.data import Samples, Subset
from certus.datasets.raw_table import RawTable, csv_table, parquet_table
from certus.errors import ArgumentError, require, truncate
from certus.kernel.check import Checked
from certus.kernel.trees import Prices
from certus.runs.certification import circumstances, uniform_label_cost, verify_about
from certus.runs.directory import require_new_run
from certus.runs.settings import CertifySettings, column_costs
from certus.storage.files import CorruptFileError, RunError, Sha256, convert, read_json, read_regular
from certus.storage.write import add_checksum, temporary_folder, verify_checksum, write_atomically, write_json
from certus.table_options import TableOptions, listed_names

TREES, MODEL = "trees.json", "model"
TREES_VERSION = 1
_MOST_MODEL = 2**33
_UNITS = "standard deviations of the imported table"


class TreeSettings(Struct, forbid_unknown_fields=True, frozen=True):
    """Content of ``trees.json``; ``deviations`` are standard deviations by the names of the model's
    columns."""

    schema_version: int
    certus_version: str
    model: str
    model_sha256: Sha256
    data: str
    folder: str
    data_sha256: Sha256
    target: str
    drop: str
    encoding: str
    separator: str
    feature_cost: str
    iterations: int | None
    deviations: dict[str, float]
    gap_cost: str = ""


def is_tree_run(path: Path) -> bool:
    """Whether a folder is a run of a tree model."""
    return (path / TREES).is_file()


def read_tree_settings(path: Path) -> TreeSettings:
    """Read ``trees.json``, checked."""
    settings = convert(verify_checksum(read_json(path / TREES), path / TREES), TreeSettings)
    if settings.schema_version != TREES_VERSION:
        raise RunError(f"{path} has another schema version than {TREES_VERSION}: import the model again.")
    return settings


@dataclass(frozen=True, eq=False)
class TreeRun:
    """A tree model, and the rows of its table.

    Attributes:
        rows: (n, columns) encoded rows; targets: (n,) codes of classes, or numbers.
        names: of the columns, in the table.
    """

    path: Path
    settings: TreeSettings
    reading: TreeModel
    rows: Tensor
    targets: Tensor
    prices: Prices
    names: tuple[str, ...]

    @property
    def right(self) -> float | None:
        """Accuracy of the model on the rows; None for a regression."""
        if self.reading.classes is None:
            return None
        predictions = self.reading.encode_targets(self.reading.predict(self.rows))
        return float((predictions == self.targets).double().mean())


def import_trees(
    path: Path,
    model: Path,
    *,
    data: str,
    target: str | None,
    drop: str = "",
    encoding: str = "utf-8",
    separator: str = ",",
    feature_cost: str = "",
    gap_cost: str = "",
    iterations: int | None = None,
    allow_code: bool = False,
) -> TreeRun:
    """Create a run from a model's file and a table; the format is detected from the content of the file."""
    require_new_run(path)
    reading = load_ensemble(model, iterations=iterations, allow_code=allow_code)
    table = _table(data, str(Path.cwd()), encoding, separator)
    target = list(table.columns)[-1] if target is None else target
    columns = _matched(reading, table, target, listed_names(drop))
    rows = _encoded(reading, table, columns)
    deviations = {}
    for place, column in enumerate(reading.columns):
        if column.labels is None and column.used:
            deviation = float(np.nanstd(rows[:, place].numpy())) if len(rows) else 0.0
            deviations[column.name] = deviation if np.isfinite(deviation) and deviation > 0 else 1.0
    settings = TreeSettings(
        schema_version=TREES_VERSION,
        certus_version=certus.__version__,
        model=model.name,
        model_sha256=hashlib.sha256(read_regular(model, _MOST_MODEL)).hexdigest(),
        data=data,
        folder=os.path.relpath(Path.cwd(), os.path.realpath(path)),
        data_sha256=_digest(data, str(Path.cwd())),
        target=target,
        drop=drop,
        encoding=encoding,
        separator=separator,
        feature_cost=feature_cost,
        gap_cost=gap_cost,
        iterations=iterations,
        deviations=deviations,
    )
    run = _run(path, settings, reading, table)
    with temporary_folder(Path(os.path.realpath(path)), path, "make") as folder:
        write_atomically(folder / MODEL, read_regular(model, _MOST_MODEL))
        content = {name: getattr(settings, name) for name in settings.__struct_fields__}
        write_json(folder / TREES, add_checksum(content))
        os.rename(folder, os.path.realpath(path))
    return run


def load_tree_run(path: Path, *, data: str | None = None, allow_code: bool = False) -> TreeRun:
    """Open the run of a tree model.

    Args:
        data: another table to certify on, with the same columns; by default the one that was imported.
        allow_code: load a model that is a pickle, which executes code.
    """
    settings, model = read_tree_settings(path), path / MODEL
    if hashlib.sha256(read_regular(model, _MOST_MODEL)).hexdigest() != settings.model_sha256:
        raise CorruptFileError(f"{model} is corrupt: it is not the file that was imported.")
    folder = str(path / settings.folder)
    if data is None and _digest(settings.data, folder) != settings.data_sha256:
        raise RunError(f"{path} was imported with other data: the sha256 of {settings.data} differs now.")
    reading = load_ensemble(model, iterations=settings.iterations, allow_code=allow_code)
    place = (settings.data, folder) if data is None else (data, str(Path.cwd()))
    return _run(path, settings, reading, _table(*place, settings.encoding, settings.separator))


def certify_tree_run(
    run: TreeRun,
    settings: CertifySettings,
    *,
    width: float = 1.05,
    time_limit: float | None = None,
    jobs: int = 1,
    progress: ProgressFunction | None = None,
) -> Certificate:
    """Certify the rows of a run that the settings select."""
    chosen = chosen_rows(run, settings)
    certificate = certify_trees(
        run.reading,
        EncodedRows(chosen.data.inputs, chosen.data.targets),
        rho=settings.rho,
        epsilon=settings.epsilon or None,
        cost=run.prices,
        label_cost=_label_cost(run, settings),
        labels="predicted" if settings.own_labels else "given",
        confidence=settings.confidence,
        clip=settings.clip,
        inequality=settings.inequality if settings.confidence is not None else None,
        width=width,
        time_limit=time_limit,
        jobs=worker_count(jobs),
        seed=settings.seed,
        progress=progress or False,
    )
    certificate.about.update(
        {
            "run": str(run.path),
            "data": settings.data or run.settings.data,
            "rows": chosen.as_json(),
            "units": _UNITS,
            "settings": settings.as_json(),
            "digests": {"weights": run.settings.model_sha256, "samples": run.settings.data_sha256},
            "library": run.reading.library,
            **circumstances(),
        }
    )
    return certificate


def _label_cost(run: TreeRun, settings: CertifySettings) -> LabelCost | None:
    classes = run.reading.classes
    return uniform_label_cost(settings.label_cost, None if classes is None else len(classes))


def verify_for_tree_run(
    certificate: Certificate, run: TreeRun, settings: CertifySettings, data: Samples
) -> Checked:
    """Let the kernel check a loaded certificate on its rows; raise ``VerificationError`` if it is not about
    the trees, the prices and the loss of the run."""
    rows, price = EncodedRows(data.inputs, data.targets), _label_cost(run, settings)
    problem, clip = tree_problem(run.reading, rows, None, run.prices, price, settings.clip)
    return verify_about(problem, certificate, data, clip)


def chosen_rows(run: TreeRun, settings: CertifySettings) -> Subset:
    """Return the rows to certify."""
    samples = Samples(run.rows, run.targets)
    source = settings.data or run.settings.data
    return Subset.of(
        samples, source, settings.samples, seed=settings.seed, stratify=settings.confidence is None
    )


def certified_samples(run: TreeRun, settings: CertifySettings) -> Samples:
    """Return the rows that the settings name, with the model's own predictions as targets if they ask so."""
    rows, reading = chosen_rows(run, settings).data, run.reading
    if not settings.own_labels:
        return rows
    return Samples(rows.inputs, reading.encode_targets(reading.predict(rows.inputs)))


def _run(path: Path, settings: TreeSettings, reading: TreeModel, table: RawTable) -> TreeRun:
    columns = _matched(reading, table, settings.target, listed_names(settings.drop))
    rows = _encoded(reading, table, columns)
    names = list(columns.values())
    costs = _known_costs("feature_cost", settings.feature_cost, names)
    gaps = _known_costs("gap_cost", settings.gap_cost, names)
    whole = [name for column, name in zip(reading.columns, names, strict=True) if not column.missing]
    full = [name for name in gaps if name in whole]
    require(not full, "gap_cost", "name columns whose gaps the model takes", ", ".join(full))
    move = [costs.get(name, 1.0) / settings.deviations.get(own, 1.0) ** 2 for own, name in columns.items()]
    discrete = torch.tensor([column.labels is not None for column in reading.columns])
    prices = Prices(
        torch.tensor(move, dtype=torch.float64),
        torch.tensor([gaps.get(name, math.inf) for name in names], dtype=torch.float64),
        discrete,
    )
    targets = _targets(reading, table, settings.target)
    return TreeRun(path, settings, reading, rows, targets, prices, tuple(names))


def _known_costs(option: str, text: str, names: list[str]) -> dict[str, float]:
    """Return the costs by column; raise for columns that the model does not have."""
    costs = column_costs(text, option)
    unknown = [name for name in costs if name not in names]
    rule = f"name columns of the model, {truncate(', '.join(names))}"
    require(not unknown, option, rule, ", ".join(unknown))
    return costs


def _place(data: str, folder: str) -> tuple[str, Path]:
    kind, colon, path = data.partition(":")
    rule = "be csv:FILE or parquet:FILE for a tree model"
    require(colon != "" and kind in ("csv", "parquet"), "data", rule, repr(data))
    return kind, Path(folder) / Path(path).expanduser()


def _digest(data: str, folder: str) -> str:
    place = _place(data, folder)[1]
    try:
        return hashlib.sha256(read_regular(place, _MOST_MODEL)).hexdigest()
    except OSError as reason:
        raise ArgumentError(f"`data` must be a file that can be read: {place}: {reason.strerror}.") from None


def _table(data: str, folder: str, encoding: str, separator: str) -> RawTable:
    kind, path = _place(data, folder)
    options = TableOptions(encoding=encoding, separator=separator)
    return parquet_table(path, options) if kind == "parquet" else csv_table(path, options)


def _matched(reading: TreeModel, table: RawTable, target: str, dropped: tuple[str, ...]) -> dict[str, str]:
    """Return, for each column of the model, the name of its column in the table."""
    names = list(table.columns)
    require(target in names, "target", f"be a column of {table.source}, {', '.join(names)}", repr(target))
    unknown = [name for name in dropped if name not in names]
    require(not unknown, "drop", f"name columns of {table.source}, {', '.join(names)}", ", ".join(unknown))
    left = [name for name in names if name != target and name not in dropped]
    own = [column.name for column in reading.columns]
    if not reading.framed:
        rule = f"have {len(own)} columns beside the target and those of --drop, as the model has"
        require(len(left) == len(own), table.source, rule, f"{len(left)}: {truncate(', '.join(left))}")
        return dict(zip(own, left, strict=True))
    plain = {name.replace(" ", "_"): name for name in left} | {name: name for name in left}  # as LightGBM
    lacking = [column.name for column in reading.columns if column.name not in plain and column.used]
    rule = f"have the columns of the model; {truncate(', '.join(lacking))} missing"
    require(not lacking, table.source, rule, truncate(", ".join(left)))
    return {name: plain.get(name, left[0]) for name in own}


def _encoded(reading: TreeModel, table: RawTable, columns: dict[str, str]) -> Tensor:
    """Return (n, columns) rows in the encoding of the ensemble."""
    require(len(table) > 0, table.source, "hold at least one row", "none")
    parts = []
    for column in reading.columns:
        raw = table.columns[columns[column.name]]
        if not column.used:
            parts.append(np.zeros(len(table)))
        elif column.labels is None:
            parts.append(column.encode(_numbers(table, columns[column.name])))
        else:
            labels = {_word(label): label for label in column.labels}
            cells = [None if cell is None else labels.get(cell, cell) for cell in raw.words]
            parts.append(column.encode(cells))
    return torch.from_numpy(np.stack(parts, 1))


def _numbers(table: RawTable, name: str) -> np.ndarray[Any, Any]:
    raw = table.columns[name]
    values = raw.plain_numbers
    wrong = np.flatnonzero(np.isnan(values) & ~raw.missing)
    if len(wrong):
        cell = raw.words[int(wrong[0])]
        raise ArgumentError(
            f"`{table.source}` must have numbers in column {name!r}, as the model does; got {cell!r} in "
            f"{table.place(int(wrong[0]))}."
        )
    return values


def _word(label: Any) -> str:
    """Return a label as the text of a table cell."""
    number = isinstance(label, float | np.floating) and float(label).is_integer()
    return str(int(label)) if number else str(label)


def _targets(reading: TreeModel, table: RawTable, target: str) -> Tensor:
    raw = table.columns[target]
    if bool(raw.missing.any()):
        row = int(np.flatnonzero(raw.missing)[0])
        raise ArgumentError(f"`{table.source}` must have a target in every row; none in {table.place(row)}.")
    if reading.classes is None:
        return torch.from_numpy(np.array(_numbers(table, target), dtype=np.float64))
    names, words = [_word(label) for label in reading.classes.tolist()], [str(cell) for cell in raw.words]
    if (
        not set(words) <= set(names)
        and len(set(words)) == len(names)
        and names == [str(code) for code in range(len(names))]
    ):
        names = sorted(set(words))  # the file has no names: codes are those of the sorted labels
    unknown = sorted(set(words) - set(names))
    rule = f"have the model's classes in column {target!r}, {truncate(', '.join(names))}"
    require(not unknown, table.source, rule, truncate(", ".join(unknown)))
    codes = {name: code for code, name in enumerate(names)}
    return torch.tensor([codes[word] for word in words], dtype=torch.int64)
