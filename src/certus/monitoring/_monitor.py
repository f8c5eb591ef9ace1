"""Monitoring: are new data still covered by the certificate, and did they change by more than chance?

The transport cost between the certified rows A and today's rows B has proven bounds
(``kernel.transport``): from below by columns, from above by a coupling. Compared with the budget ρ of a
certificate they give a *position*:

    outside     low > ρ, or rows that lie outside the domain: the certificate says nothing about these rows
    covered     high ≤ ρ: the bound at ρ holds if each row has the label of the row it is coupled with
    undecided   otherwise

This is about the certified *sample*. Two samples of one law are far apart in many dimensions, so that the
position alone is no alarm. The alarm comes from a permutation test: p ≤ level, and not covered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus._render import Renderable
from certus.certificates.certificate import Certificate
from certus.certificates.consistency import check_observed
from certus.certificates.couplings import propose_coupling
from certus.data import DataLike, Samples, choose_rows
from certus.errors import ArgumentError, require, require_seed
from certus.kernel.evidence import Evidence
from certus.kernel.transport import TransportBounds
from certus.losses import evaluate_loss, predicted
from certus.monitoring.permutation import PermutationTest, permutation_test
from certus.monitoring.reading import Rows, random_rows
from certus.monitoring.reference import Reference, reference_of
from certus.runs.directory import CERTIFICATE_FOLDER
from certus.runs.factory import default_cost, features_of
from certus.runs.loaded_run import LoadedRun
from certus.runs.shifts import shifted_features
from certus.storage.files import plain_json
from certus.table_options import TableOptions

MOST_ROWS = 10_000
"""Largest number of new rows to compare; more are represented by a random subset."""
_MOST_NUMBERS = 4_000_000  # of the permutation test, whose samples are subsets where data are wide


class Position(StrEnum):
    """Position of new rows relative to the ball of radius ρ around the certified rows."""

    OUTSIDE = "outside"
    COVERED = "covered"
    UNDECIDED = "undecided"


class Verdict(StrEnum):
    """Verdict of a check: fine, alarm, or undecided."""

    FINE = "fine"
    ALARM = "alarm"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class ColumnMove:
    """The move of one column.

    Attributes:
        cost: proven lower bound on the transport cost of this column alone; share: its share of the budget ρ.
        chance: mean cost by chance alone, over the permutations.
        moved: root mean square move in standard deviations, or the share of changed rows; before, after:
            means in the units of the source. None where the columns have no names.
    """

    column: str
    cost: float
    share: float
    chance: float
    moved: float | None = None
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class Distance:
    """Bounds on the transport cost between today's rows and the certified ones; ``unit`` is the cost of
    one unit of root mean square distance."""

    low: float
    high: float
    unit: float

    @property
    def root_low(self) -> float:
        """``low`` as a root mean square distance."""
        return math.sqrt(self.low / self.unit)

    @property
    def root_high(self) -> float:
        return math.sqrt(self.high / self.unit)


@dataclass(frozen=True)
class Realised:
    """Errors on new labelled rows, or their mean loss in a regression; and ``relabelled``, an upper bound
    on the share of new rows that are coupled with a row of another label."""

    rows: int
    error: float | None
    loss: float
    relabelled: float | None


@dataclass(frozen=True, eq=False)
class MonitorResult(Renderable):
    """Verdict about new rows; ``print`` explains it.

    Attributes:
        verdict: "fine", "alarm" or "undecided"; position: "covered", "outside" or "undecided".
        distance: bounds on the transport cost from the certified rows.
        p_value: p of the permutation test; level: α. An alarm needs p ≤ α.
        chance: mean cost of all columns by chance alone.
        statistic, line: mean move of the columns, in multiples of chance, and the alarm line.
        by_column: the columns, the most expensive first.
        bound: upper bound on the error rate (or mean loss) of new rows, at the measured distance; ∞ without
            one.
        realised: errors or losses on labelled rows.
        rho: the budget; name: name of the new rows, such as "2016-03".
        rows, reference_rows, total: numbers of compared, certified, and read rows.
        outside_domain: the number of compared rows outside the domain of the certificate.
        evidence: evidence of the distance and of the bound; assumptions: what it rests on, if assumed.
    """

    verdict: Verdict
    position: Position
    distance: Distance
    p_value: float
    chance: float
    by_column: tuple[ColumnMove, ...]
    bound: float
    realised: Realised | None
    rho: float
    level: float
    statistic: float
    line: float
    rows: int
    reference_rows: int
    total: int
    labelled: bool
    regression: bool
    label_price: float
    outside_domain: int = 0
    chosen: tuple[str, ...] | None = None
    evidence: Evidence = Evidence.STATED
    assumptions: tuple[str, ...] = ()
    units: str = ""
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def alarm(self) -> bool:
        return self.verdict is Verdict.ALARM

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON; ∞ becomes null."""
        content: dict[str, Any] = plain_json(self)
        return content


class Monitor:
    """Compares new rows with the rows of a certificate.

    Args:
        certificate: a ``Certificate``, the path of its file, or the folder of a run that has one.
        reference: the certified rows, where neither the certificate nor its run has them.
        level: probability of a false alarm.
        columns: names (or numbers) of the columns that count: the others are taken to stay as they are in the
            certified rows. By default all that the cost lets move.
        seed: seed of random subsets and permutations.
        run: the run of the certificate, if it is loaded already.
        reading: options of new tables, where they are written otherwise than the table of the run.

    >>> import certus
    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs = torch.randn(300, 2, generator=generator)
    >>> model = torch.nn.Linear(2, 2)
    >>> certificate = certus.certify(model, (inputs, (inputs[:, 0] > 0).long()), rho=0.1, progress=False)
    >>> monitor = certus.Monitor(certificate)
    >>> monitor.check(torch.randn(300, 2, generator=generator)).alarm
    False
    >>> monitor.check(torch.randn(300, 2, generator=generator) + 1).alarm
    True
    """

    def __init__(
        self,
        certificate: Certificate | str | Path,
        reference: DataLike | None = None,
        *,
        level: float = 0.05,
        columns: Sequence[str | int] | None = None,
        seed: int = 0,
        run: LoadedRun | None = None,
        reading: TableOptions | None = None,
    ) -> None:
        require(0 < level < 1, "level", "lie between 0 and 1", level)
        require_seed(seed)
        if not isinstance(certificate, Certificate):
            certificate = Certificate.load(certificate_file(Path(certificate)))
        require(len(certificate.rhos) > 0, "certificate", "have a rho", "none")
        require(max(certificate.rhos) > 0, "certificate", "have a rho above 0", certificate.rhos)
        self.certificate, self.level, self.seed = certificate, level, seed
        self.reference: Reference = reference_of(certificate, reference, run)
        if reading is not None:
            self.reference = replace(self.reference, reading=reading)
        self.rho = max(certificate.rhos)
        self.chosen = None if columns is None else tuple(str(name) for name in columns)
        self._counted = self._mask(columns)

    def _mask(self, columns: Sequence[str | int] | None) -> Tensor | None:
        """Return a (*shape) mask of the compared inputs."""
        if columns is None:
            return None
        data, shape = self.reference.data, self.reference.inputs.shape[1:]
        require(
            len(shape) == 1, "columns", "be left out for inputs that are no rows of a table", tuple(shape)
        )
        require(len(columns) > 0, "columns", "name a column", "none")
        names: dict[str, list[int]] = {str(place): [place] for place in range(shape[0])}
        if data is not None and data.feature_names is not None:
            names = {each.name: [*each.columns, *each.mark] for each in features_of(data)}
        mask = torch.zeros(shape, dtype=torch.bool)
        for name in columns:
            require(str(name) in names, "columns", f"be among {', '.join(names)}", repr(name))
            mask[names[str(name)]] = True
        free = self.reference.cost.free
        frozen = free is not None and not bool((mask & free).any())
        require(
            not frozen, "columns", "name a column that the cost of the certificate lets move", list(columns)
        )
        return mask

    def check(
        self,
        new: Any,
        targets: Any = None,
        *,
        clusters: tuple[Any, Any] | None = None,
        level: float | None = None,
        name: str = "",
    ) -> MonitorResult:
        """Compare new rows with the certified ones.

        Args:
            new: rows as the model takes them (a tensor, an array, ``Samples``, a ``DataLoader`` or other
                batches); for the certificate of a run on a table also a data frame, or "csv:FILE".
            targets: (m,) labels, or numbers of a regression, if they are known and not part of ``new``.
            clusters: names of the clusters of certified and new rows, such as customers; clusters are
                permuted as a whole, and must be whole on both sides.
            level: level of this check, if several checks share one.
            name: of these rows, for tables and pictures.
        """
        return self.judge(self.read(new, targets), clusters=clusters, level=level, name=name)

    def chunks(
        self,
        new: Any,
        targets: Any = None,
        *,
        by: str | int = "month",
        dates: Any = None,
        clusters: str | None = None,
        horizon: int | None = None,
    ) -> list[MonitorResult]:
        """Compare each chunk of new rows with the certified ones; all checks together have the level.

        Args:
            by: "day", "week", "month", "quarter" or "year"; a number of rows; or the name of a column of the
                new table whose values are the chunks.
            dates: the column with the dates, by default the only one; or (m,) dates.
            clusters: the column that names what rows belong to, such as customers, in the table of the run
                too.
            horizon: the number of checks that share the level, if more will follow; all chunks by default.
        """
        from certus.monitoring.chunks import check_chunks  # which is about monitors

        return list(check_chunks(self, new, targets, by=by, dates=dates, clusters=clusters, horizon=horizon))

    def read(self, new: Any, targets: Any = None) -> Rows:
        """Read new rows; at most ``MOST_ROWS`` of them, chosen at random."""
        return random_rows(new, targets, self.reference, self.certificate.classes, MOST_ROWS, self.seed)

    def judge(
        self,
        rows: Rows,
        *,
        clusters: tuple[Any, Any] | None = None,
        share: float = 1.0,
        level: float | None = None,
        name: str = "",
    ) -> MonitorResult:
        """Compare new rows after reading; ``share`` of the rows of each cluster are certified."""
        level, certificate, own = self.level if level is None else level, self.certificate, self.reference
        regression = certificate.classes is None
        known = rows.labelled(torch.float64 if regression else torch.int64)
        rule = "be left out: the certificate is about predicted labels"
        require(known is None or certificate.labels == "given", "targets", rule, "targets")
        labelled = not regression and known is not None and len(known) == len(rows.inputs)
        targets = (own.targets, known.targets) if labelled and known is not None else None
        outside = int((~own.inside(rows.inputs)).sum())
        bounds = self.bounds(rows.inputs, targets, coupled=outside == 0)
        test = self._test(rows, clusters, share, level)
        position = Position.UNDECIDED
        if outside or bounds.low > self.rho:
            position = Position.OUTSIDE
        elif bounds.high <= self.rho:
            position = Position.COVERED
        verdict = Verdict.ALARM if test.p_value <= level else Verdict.UNDECIDED
        if position is Position.COVERED:
            verdict = Verdict.FINE
        evidence = certificate.evidence if bounds.evidence == "proven" else bounds.evidence
        assumptions = tuple(dict.fromkeys([*certificate.assumptions, *bounds.assumptions]))
        return MonitorResult(
            verdict=verdict,
            position=position,
            distance=Distance(bounds.low, bounds.high, certificate.unit_cost),
            p_value=test.p_value,
            chance=test.chance,
            by_column=self._by_column(rows.inputs, bounds, test),
            bound=math.inf if outside else self._bound(bounds),
            realised=None if known is None else self._realised(known, bounds, whole=labelled),
            rho=self.rho,
            level=level,
            statistic=test.statistic,
            line=test.line,
            rows=len(rows.inputs),
            reference_rows=len(own.inputs),
            total=rows.total,
            labelled=labelled,
            regression=regression,
            label_price=own.cost.label_price,
            outside_domain=outside,
            chosen=self.chosen,
            evidence=evidence,
            assumptions=assumptions,
            units="" if own.data is None else own.data.units,
            name=name,
            notes=rows.notes,
        )

    def bounds(
        self, inputs: Tensor, targets: tuple[Tensor, Tensor] | None = None, *, coupled: bool = True
    ) -> TransportBounds:
        """Bound the transport cost from the certified rows; from below alone, unless ``coupled``."""
        own = self.reference
        coupling = None
        if coupled:
            coupling = propose_coupling(
                own.inputs, inputs, own.cost, targets=targets, counted=self._counted, seed=self.seed
            )
        return TransportBounds.of(
            *(own.inputs, inputs, own.cost),
            targets=targets,
            counted=self._counted,
            groups=own.groups,
            coupling=coupling,
        )

    def _test(
        self, new: Rows, clusters: tuple[Any, Any] | None, share: float, level: float
    ) -> PermutationTest:
        """Run the test, on random subsets where there are too many numbers.

        Values of a discrete column that the run never had set none of its inputs: where they occur, the share
        of such rows is one more column of the test. Clusters can only be exchanged if both sides hold the
        same share of their rows: of the side with more, a random subset of rows is taken.
        """
        own = self.reference
        weights = torch.as_tensor(own.cost.weights, dtype=torch.float64).expand(own.cost.shape)
        counted = torch.ones(own.cost.shape, dtype=torch.bool) if self._counted is None else self._counted
        counted = counted if own.cost.free is None else counted & own.cost.free.expand(own.cost.shape)
        most = max(1000, min(MOST_ROWS, _MOST_NUMBERS // max(1, int(counted.sum()))))
        parts, names = [], []
        sides, prices = (own.inputs, new.inputs), (own.cost.growth / 2 * weights[counted]).numpy()
        groups = [list(group) for group in own.groups if bool(counted[list(group)].any())]
        unknown = [(rows[:, group] == 0).all(1) for group in groups for rows in sides]
        groups = [
            group for place, group in enumerate(groups) if bool(torch.cat(unknown[2 * place :][:2]).any())
        ]
        prices = np.append(prices, [own.cost.growth / 2 * float(weights[group[0]]) for group in groups])
        counts = [min(len(rows), most) for rows in sides]
        if clusters is not None:
            held = share, len(new.inputs) / new.total
            least = min(
                each * count / len(rows) for each, count, rows in zip(held, counts, sides, strict=True)
            )
            counts = [max(1, round(len(rows) * least / each)) for each, rows in zip(held, sides, strict=True)]
        for place, (rows, count) in enumerate(zip(sides, counts, strict=True)):
            chosen = choose_rows(len(rows), count, self.seed)
            kept = rows[chosen].double()
            marks = [(kept[:, group] == 0).all(1, keepdim=True).double() for group in groups]
            parts.append(torch.cat([kept[:, counted], *marks], 1).numpy())
            if clusters is not None:
                labels = np.asarray(clusters[place])
                rule = f"name the cluster of each of the {len(rows)} rows"
                require(labels.shape == (len(rows),), "clusters", rule, labels.shape)
                names.append(labels[chosen.numpy()].astype(str))
        return permutation_test(
            parts[0],
            parts[1],
            prices,
            level=level,
            clusters=(names[0], names[1]) if names else None,
            seed=self.seed,
        )

    def _by_column(
        self, inputs: Tensor, bounds: TransportBounds, test: PermutationTest
    ) -> tuple[ColumnMove, ...]:
        """Return the moves of the columns of a table, largest cost first."""
        own, data = self.reference, self.reference.data
        if own.inputs.dim() != 2:
            return ()
        counted = torch.ones(own.cost.shape, dtype=torch.bool) if self._counted is None else self._counted
        counted = counted if own.cost.free is None else counted & own.cost.free.expand(own.cost.shape)
        chance = torch.zeros(own.cost.shape, dtype=torch.float64)
        chance[counted] = torch.from_numpy(test.chance_columns[: int(counted.sum())])
        places = own.names or {f"column {place}": [place] for place in range(own.inputs.shape[1])}
        means = {}
        if data is not None and data.feature_names is not None:
            places = {each.name: [*each.columns, *each.mark] for each in features_of(data)}
            moved = shifted_features(data, own.inputs, inputs, default_cost(data))
            means = {each.feature: (each.moved, each.before, each.after) for each in moved}
        columns = []
        for column, inside in places.items():
            if bool(counted[inside].any()):
                cost = float(bounds.columns[inside].sum())
                about = means.get(column, (None, None, None))
                columns.append(ColumnMove(column, cost, cost / self.rho, float(chance[inside].sum()), *about))
        return tuple(sorted(columns, key=lambda each: -each.cost))

    def _bound(self, bounds: TransportBounds) -> float:
        """Bound the error rate of the new rows, or the mean loss of a regression, from above. Without a
        label cost, all rows that are coupled with another label count as errors."""
        certificate = self.certificate
        if certificate.no_proof is not None or not math.isfinite(bounds.high):
            return math.inf
        if certificate.classes is None:
            return certificate.bound(bounds.high)
        high = certificate.error_bound(bounds.high)
        if high is None:
            return math.inf
        priced = self.reference.cost.label_price < math.inf
        return high if bounds.relabelled is None or priced else bounds.error(high)

    def _realised(self, data: Samples, bounds: TransportBounds, *, whole: bool) -> Realised | None:
        """Errors on the labelled rows; raise where they contradict the certificate. ``whole``: the coupling
        is about these rows and their labels."""
        certificate, own = self.certificate, self.reference
        if certificate.source is not None:
            loss, error = certificate.source.evaluate(data)
        elif own.trained is not None:
            criterion = own.trained.certified_criterion
            with torch.no_grad():
                model = own.trained.model
                outputs = torch.cat([model(part.float()) for part in data.inputs.split(512)]).double()
            loss = float(evaluate_loss(criterion, outputs, data.targets).mean())
            labels = None if certificate.classes is None else predicted(outputs) != data.targets
            error = None if labels is None else float(labels.double().mean())
        else:
            return None
        agrees = whole and (bounds.relabelled == 0 or own.cost.label_price < math.inf)
        if certificate.source is not None and agrees and self._counted is None:
            inside = bool(own.inside(data.inputs).all())
            if inside and own.cost.free is None and certificate.no_proof is None:
                check_observed(certificate, bounds.high, loss, error, "the new data")
        return Realised(len(data), error, loss, bounds.relabelled)


def certificate_file(path: Path) -> Path:
    """Return the certificate of a run, or of a folder; a file stays as it is."""
    if not path.is_dir():
        return path
    places = (path / CERTIFICATE_FOLDER / "certificate.json", path / "certificate.json")
    file = next((place for place in places if place.exists()), None)
    if file is None:
        smoothed = (path / CERTIFICATE_FOLDER / "smoothing.json").exists()
        reason = "only one by smoothing, which is about noisy predictions" if smoothed else "none"
        rule = f"have a certificate: certus certify {path} --rho RHO makes one"
        raise ArgumentError(f"`{path}` must {rule}; got {reason}.")
    return file
