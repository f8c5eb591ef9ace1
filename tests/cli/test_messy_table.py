"""A file as offices export it, from ``certus train`` to a report: each stop names what mends it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from tests.cli.test_cli import certus

ROWS = 600
TRAINING = [
    "--method",
    "erm",
    "--model",
    "mlp:8",
    "--epochs",
    "30",
    "--lr",
    "0.03",
    "--class-weights",
    "balanced",
]


def messy_lines(rows: int, seed: int) -> list[str]:
    """cp1252, semicolons, dates in two formats, €1.234,50, yes/no/Y/N, postcodes with leading zeros, many
    merchants, gaps as "-", few positives, and a column that leaks."""
    rng = np.random.default_rng(seed)
    header = [
        "Kunde Nr",
        "Geburtstag",
        "Größe",
        "Umsatz",
        "Vertrag",
        "PLZ",
        "Händler",
        "Besuche",
        "Erstattung",
        "Kündigung",
    ]
    lines = [";".join(header)]
    for at in range(rows):
        height, sales = rng.normal(170, 10), abs(rng.normal(1500, 900)) + 1
        risk = (height - 170) / 10 + (sales - 1500) / 900
        left = rng.random() < 1 / (1 + np.exp(4.5 - 2 * risk))
        month, day = int(rng.integers(1, 13)), int(rng.integers(1, 29))
        birthday = (
            f"{day:02d}.{month:02d}.{1950 + at % 50}" if at % 3 else f"{1950 + at % 50}-{month:02d}-{day:02d}"
        )
        cells = [
            str(700_000 + at),
            birthday,
            "-" if at % 9 == 4 else f"{height:.1f}".replace(".", ","),
            "€" + f"{sales:,.2f}".translate(str.maketrans(",.", ".,")),
            str(rng.choice(["yes", "no", "Y", "N"])),
            f"{int(rng.choice([1067, 4109, 80331])):05d}",
            f"Händler {int(rng.zipf(1.3)) % 966}",
            str(int(rng.integers(0, 12))),
            f"{(40 + 5 * rng.random()) * left:.2f}".replace(".", ","),
            "yes" if left else "no",
        ]
        lines.append(";".join(cells))
    return lines


def test_from_the_messy_file_to_a_report(tmp_path: Path) -> None:
    (tmp_path / "kunden.csv").write_bytes("\n".join(messy_lines(ROWS, 0)).encode("cp1252"))
    options: list[str] = []
    for _ in range(3):  # at most two stops
        done = certus("train", "csv:kunden.csv", *TRAINING, *options, "-o", "run", folder=tmp_path)
        if done.returncode == 0:
            break
        named = re.findall(
            r"--(?:na|drop|decimal|date-format|separator|encoding)=\S+?(?=[.,;]|\s|$)", done.stderr
        )
        assert named, done.stderr
        options += named
    assert done.returncode == 0, done.stderr
    said = done.stderr
    for words in ("cp1252", "Leak? 'Erstattung'", "--drop Erstattung", "an identifier", "(other)", "a date"):
        assert words in said, said
    options += ["--drop", "Erstattung"]
    done = certus("train", "csv:kunden.csv", *TRAINING, *options, "-o", "clean", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Leak?" not in done.stderr
    description = certus("data", "describe", "kunden.csv", *options, "--json", folder=tmp_path)
    assert description.returncode == 0, description.stderr
    columns = {column["name"]: column for column in json.loads(description.stdout)["columns"]}
    assert columns["Umsatz"]["kind"] == "money"
    assert all(cell.startswith("€") for cell in columns["Umsatz"]["before"])
    assert all(float(cell) > 0 for cell in columns["Umsatz"]["after"])
    assert {columns[name]["kind"] for name in ("Vertrag", "PLZ")} == {"boolean", "category"}

    # Next year's file: another encoding and separator, a new merchant.
    later = [line.replace(";", "\t").replace("Händler 3", "Händler neu") for line in messy_lines(200, 1)]
    (tmp_path / "next.csv").write_bytes("\n".join(later).encode("utf-16"))
    done = certus("predict", "clean", "next.csv", "--no-radius", "-o", "out.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 201

    quick = [
        "--rho",
        "0.01",
        "--samples",
        "40",
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
        "--attack-steps",
        "2",
    ]
    assert certus("certify", "clean", *quick, folder=tmp_path).returncode == 0
    assert certus("report", "clean", folder=tmp_path).returncode == 0
    assert list(tmp_path.rglob("*.html"))


def test_a_description_lists_what_is_wrong(tmp_path: Path) -> None:
    """All columns, then the problems, the worst first, each on a line."""
    lines = [
        "price,when,y",
        *(f"{'1.234' if at % 2 else '950'},{'x' if at == 3 else '3/4/2024'},{at % 2}" for at in range(40)),
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    done = certus("data", "describe", "a.csv", folder=tmp_path)
    assert done.returncode == 2
    assert "price" in done.stdout
    first, second = (line for line in done.stderr.splitlines() if line.startswith("("))
    assert "--decimal" in first
    assert "'x' in column 'when'" in second
