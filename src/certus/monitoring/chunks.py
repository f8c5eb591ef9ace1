"""Chunks of rows by time, and the moves between them.

The checks of all chunks share one level (alpha spending): each of K chunks has α/K, so that the
probability of any false alarm is at most α. A schedule that goes on states its number of checks beforehand
(``horizon``); the level of a chunk then never depends on how many came before.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certus.bounds.analysis import kernel_cost
from certus.datasets.cells import Ambiguous, Reading
from certus.datasets.raw_table import RawColumn
from certus.errors import ArgumentError, require, require_count, require_number
from certus.monitoring._monitor import MOST_ROWS, Monitor, MonitorResult
from certus.monitoring.permutation import permutation_test
from certus.monitoring.reading import Batch, Rows, batches, certified_clusters, grouped_rows
from certus.monitoring.reference import Reference
from certus.runs.loaded_run import LoadedRun
from certus.table_options import TableOptions

PERIODS = ("day", "week", "month", "quarter", "year")
_LEAST = 20  # rows of a chunk that is compared


def period_name(days: float, period: str) -> str:
    """Return the period that a day lies in, by days since 1970; names sort by time.

    >>> [period_name(16_860.0, period) for period in PERIODS]
    ['2016-02-29', '2016-W09', '2016-02', '2016-Q1', '2016']
    """
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(np.floor(days)))
    year, week, _ = date.isocalendar()
    return {
        "day": date.isoformat(),
        "week": f"{year}-W{week:02}",
        "month": f"{date:%Y-%m}",
        "quarter": f"{date.year}-Q{(date.month + 2) // 3}",
        "year": f"{date.year}",
    }[period]


def grouping(
    by: str | int, dates: Any = None, options: TableOptions | None = None
) -> Callable[[Batch], Sequence[str]]:
    """Return the function that names the chunk of each row.

    Args:
        by: a period, a number of rows, or the name of a column whose values are the chunks.
        dates: the column with the dates (by default the only one), or (m,) dates of all rows.
        options: of the table, such as the format of its dates.
    """
    if isinstance(by, int):
        require_count("by", by, least=_LEAST)
        return lambda part: [f"{1 + (part.first + row) // by:06}" for row in range(len(part))]
    if by not in PERIODS:
        require(
            dates is None, "dates", f"be left out unless `by` is one of {', '.join(PERIODS)}", repr(dates)
        )
        return lambda part: part.words(by, "by")
    whole = None if dates is None or isinstance(dates, str) else _days(dates)

    def names(part: Batch) -> list[str]:
        if whole is not None:
            rule = "have a date for every row"
            require(part.first + len(part) <= len(whole), "dates", rule, f"{len(whole)} dates")
            days = whole[part.first : part.first + len(part)]
        else:
            days = _column_days(part, dates, options or TableOptions())
        distinct = {day: period_name(day, by) for day in np.unique(np.floor(days)).tolist()}
        return [distinct[day] for day in np.floor(days).tolist()]

    return names


def _days(dates: Any) -> Any:
    try:
        return np.asarray(dates, dtype="datetime64[D]").astype(np.int64).astype(np.float64)
    except (ValueError, TypeError):
        raise ArgumentError("`dates` must be dates, such as numpy.datetime64; got others.") from None


def _column_days(part: Batch, column: str | None, options: TableOptions) -> Any:
    """Return the days of a column of dates of a table."""
    table = part.table
    remedy = "; give `dates`, or a number of rows or a column as `by`"
    if table is None:
        raise ArgumentError(f"`dates` must be given for rows that are no table{remedy}.")
    if column is None:
        date_columns = [name for name, raw in table.columns.items() if _kind(raw, options) == "date"]
        if len(date_columns) != 1:
            names = ", ".join(date_columns) if date_columns else "none"
            raise ArgumentError(f"`dates` must name the column of dates; {table.source} has {names}{remedy}.")
        column = date_columns[0]
    part.words(column, "dates")
    raw = table.columns[column]
    reading = raw.read(options)
    if isinstance(reading, Ambiguous):
        raise ArgumentError(
            f"`dates` must name a column that can be read one way only; got {reading.cell!r} in {column!r}, "
            f"which reads as {' or '.join(reading.readings)}."
        )
    kind = "words" if reading is None else reading.kind
    require(kind == "date", "dates", "name a column of dates", f"{column!r}, of {kind}")
    assert reading is not None
    days = raw.parse(reading)
    require(not bool(np.isnan(days).any()), "dates", "be there in every row", f"gaps in {column!r}")
    return days


def _kind(raw: RawColumn, options: TableOptions) -> str:
    reading = raw.read(options)
    return reading.kind if isinstance(reading, Reading) else "words"


def check_chunks(
    monitor: Monitor,
    new: Any,
    targets: Any = None,
    *,
    by: str | int = "month",
    dates: Any = None,
    clusters: str | None = None,
    horizon: int | None = None,
    name: str = "",
) -> Iterator[MonitorResult]:
    """Compare each chunk of new rows with the certified ones; see ``Monitor.chunks``. If ``by`` is empty, all
    rows are one chunk, of this name."""
    parts = batches(new, targets, monitor.reference, monitor.certificate.classes)
    groups = grouped_rows(
        parts,
        grouping(by, dates, monitor.reference.table_options) if by else None,
        MOST_ROWS,
        monitor.seed,
        clusters,
    )
    own, share = None, 1.0
    if clusters is not None:
        own, share = certified_clusters(monitor.reference, clusters)
    count = len(groups) if horizon is None else horizon
    require(count >= len(groups), "horizon", f"be at least the number of chunks, {len(groups)}", count)
    require(count > 0, "new", "hold at least one row", "none")
    for chunk in sorted(groups):
        rows = groups[chunk]
        if len(rows.inputs) < 2:
            rule = "give chunks of at least 2 rows" if by else "hold at least 2 rows, to be compared"
            require(False, "by" if by else "new", rule, f"1 in {chunk or name}")
        both = None if own is None else (own, rows.clusters)
        yield monitor.judge(rows, clusters=both, share=share, level=monitor.level / count, name=chunk or name)


@dataclass(frozen=True)
class PlausibleBudget:
    """A quantile of the moves between chunks of the past; *estimated*.

    Attributes:
        rho: the quantile; quantile: which; moves: of each pair of chunks, smallest first.
        chunks: number of chunks.
    """

    rho: float
    quantile: float
    moves: tuple[float, ...]
    chunks: int

    @property
    def words(self) -> str:
        return (
            f"rho = {self.rho:.4g} is the {self.quantile:g} quantile of {len(self.moves)} moves between "
            f"{self.chunks} chunks of the past, column by column, less what chance gives (estimated)"
        )


def plausible_budget(
    groups: dict[str, Rows], weights: Any, *, quantile: float = 0.9, seed: int = 0
) -> PlausibleBudget:
    """Estimate how far the data move between chunks: Σⱼ wⱼ W(Aⱼ, Bⱼ) less its mean under permutations."""
    require_number("quantile", quantile, zero=True)
    require(quantile <= 1, "quantile", "lie between 0 and 1", quantile)
    chunks = [rows for rows in groups.values() if len(rows.inputs) >= _LEAST]
    rule = f"have at least 2 chunks of {_LEAST} rows or more"
    require(len(chunks) >= 2, "history", rule, f"{len(chunks)} of {len(groups)}")
    moves = []
    for one, other in combinations(chunks, 2):
        first, second = (rows.inputs[:2000].flatten(1).numpy() for rows in (one, other))
        test = permutation_test(first, second, weights, rounds=25, seed=seed)
        moves.append(max(0.0, float(test.columns.sum()) - test.chance))
    rho = float(np.quantile(moves, quantile, method="higher"))
    return PlausibleBudget(rho, quantile, tuple(sorted(moves)), len(chunks))


def budget_from_history(
    trained: LoadedRun,
    history: Any,
    *,
    by: str | int = "month",
    dates: Any = None,
    quantile: float = 0.9,
    seed: int = 0,
) -> PlausibleBudget:
    """Estimate a budget from chunks of the past, in the units of a run.

    Args:
        history: a file of a table, as for ``Monitor.check``, or a data frame.
        by, dates: the chunks, as for ``Monitor.chunks``.
    """
    data = trained.data
    inputs = data.train.inputs.double()
    cost = kernel_cost(trained.cost, tuple(inputs.shape[1:]))
    own = Reference(inputs, data.train.targets, cost, trained.domain.kernel(), trained=trained)
    spec = table_spec(history) if isinstance(history, str) else history
    groups = grouped_rows(batches(spec, None, own, data.classes), grouping(by, dates), MOST_ROWS, seed)
    weights = torch.as_tensor(cost.weights, dtype=torch.float64).expand(cost.shape).flatten()
    weights = (
        weights if cost.free is None else torch.where(cost.free.expand(cost.shape).flatten(), weights, 0.0)
    )
    return plausible_budget(groups, (cost.growth / 2 * weights).numpy(), quantile=quantile, seed=seed)


def table_spec(new: str) -> str:
    """Return a data set as for ``certus train``: files of tables need no prefix.

    >>> table_spec("new.csv"), table_spec("new.parquet"), table_spec("digits@test")
    ('csv:new.csv', 'parquet:new.parquet', 'digits@test')
    """
    suffix = Path(new).suffix.lower().removeprefix(".")
    return f"{suffix}:{new}" if suffix in ("csv", "parquet") and ":" not in new else new
