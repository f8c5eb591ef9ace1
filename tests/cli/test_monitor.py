"""``certus monitor``: tables by month, labels or none, exit codes, JSON lines and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certus.certificates import Certificate
from certus.monitoring import Monitor
from tests.cli.test_cli import certus, refused

MONTHS = 4
COUNT = 80  # rows of a month


def rows(seed: int, *, moved_from: int = MONTHS) -> list[dict[str, str]]:
    """Four months; income rises by one and a half deviations from one of them on."""
    rng, lines = np.random.default_rng(seed), []
    for month in range(MONTHS):
        for at in range(COUNT):
            income = rng.normal(1.5 * (month >= moved_from), 1)
            town = "ab"[int(rng.integers(2))]
            lines.append(
                {
                    "income": f"{1000 + 100 * income:.2f}",
                    "town": town,
                    "when": f"2016-{month + 1:02}-{at % 28 + 1:02}",
                    "customer": f"c{seed}-{month}-{at // 4}",
                    "label": "yes" if income + 0.1 * rng.normal() > 0 else "no",
                }
            )
    return lines


def write(path: Path, lines: list[dict[str, str]], *, without: tuple[str, ...] = ()) -> None:
    names = [name for name in lines[0] if name not in without]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(lines)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitor")
    write(folder / "old.csv", rows(0))
    write(folder / "same.csv", rows(1))
    write(folder / "moved.csv", rows(2, moved_from=2))
    write(folder / "inputs.csv", rows(2, moved_from=2), without=("label",))
    options = ("--drop", "when,customer", "--method", "erm", "--model", "mlp:4:elu", "--epochs", "3")
    done = certus("train", "csv:old.csv", *options, "--target", "label", "-o", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    coarse = ("--local-radii", "1", "--gamma-rounds", "0", "--attack-steps", "2")
    done = certus("certify", "run", "--rho", "0.05", "--rho", "0.5", *coarse, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_months_that_moved_raise_an_alarm(place: Path, tmp_path: Path) -> None:
    stored = str(tmp_path / "seen.jsonl")
    places = ("-o", stored, "--plot", str(tmp_path / "seen.png"))
    by = ("--chunks", "month", "--dates", "when")
    done = certus("monitor", "run", "moved.csv", *by, *places, "--json", folder=place)
    assert done.returncode == 1
    results = lines(done.stdout)
    assert [result["name"] for result in results] == ["2016-01", "2016-02", "2016-03", "2016-04"]
    assert [result["verdict"] == "alarm" for result in results] == [False, False, True, True]
    assert {result["level"] for result in results} == {0.05 / MONTHS}
    assert "2016-03, 2016-04" in done.stderr.splitlines()[-1]
    assert results[3]["by_column"][0]["column"] == "income"
    assert results[3]["by_column"][0]["after"] == pytest.approx(1150, abs=40)
    assert all(result["rows"] == COUNT and result["labelled"] for result in results)
    assert (tmp_path / "seen.png").stat().st_size > 0
    # A second call replaces these months, and keeps others.
    done = certus("monitor", "run", "same.csv", *places, folder=place)
    assert done.returncode == 0, done.stderr
    assert [line["name"] for line in lines(Path(stored).read_text())][-2:] == ["2016-04", "same.csv"]
    done = certus("monitor", "run", "moved.csv", "--chunks", "month", *places, folder=place)
    assert done.returncode == 1
    assert len(lines(Path(stored).read_text())) == MONTHS + 1
    assert "2016-03" in done.stdout
    assert "Written: " in done.stdout


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures, which are slow; one test draws them."""
    monkeypatch.setattr("certus.display.figures.monitor_figure", lambda *_: None)
    monkeypatch.setattr("certus.display.canvas.save_figure", lambda *_: None)


def test_the_command_agrees_with_python(place: Path) -> None:
    done = certus("monitor", "run", "inputs.csv", "--json", folder=place)
    (result,) = lines(done.stdout)
    certificate = Certificate.load(place / "run/certificate/certificate.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        own = Monitor(certificate, level=0.05).check("csv:inputs.csv", name="inputs.csv")
    assert own.as_json() | {"evidence": "proven"} == result  # which the kernel has checked
    assert (result["labelled"], result["realised"]) == (False, None)
    assert (place / "run/monitor.jsonl").exists()
    assert (place / "run/monitor.png").exists()


@pytest.mark.usefixtures("undrawn")
def test_rows_of_the_certificate_are_covered(place: Path) -> None:
    done = certus("monitor", "run", "csv:old.csv@test", folder=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Fine: ")
    (result,) = lines(certus("monitor", "run", "csv:old.csv@test", "--json", folder=place).stdout)
    certificate = Certificate.load(place / "run/certificate/certificate.json")
    assert (result["verdict"], result["distance"]["high"]) == ("fine", 0)
    assert result["realised"]["error"] == pytest.approx(certificate.bracket(0.0).error_low, abs=1e-9)


@pytest.mark.usefixtures("undrawn")
def test_labels_may_come_late_and_the_certificate_is_proven_again(place: Path, tmp_path: Path) -> None:
    table = rows(1)
    for row in table[MONTHS * COUNT // 2 :]:
        row["label"] = ""
    write(tmp_path / "late.csv", table)
    by = ("--chunks", "quarter", "--dates", "when", "--json")
    first, second = lines(certus("monitor", "run", str(tmp_path / "late.csv"), *by, folder=place).stdout)
    assert (first["rows"], first["realised"]["rows"], first["labelled"]) == (3 * COUNT, 2 * COUNT, False)
    assert second["realised"] is None
    assert {first["evidence"], second["evidence"]} == {"proven"}
    for row in table:
        row["label"] = ""
    write(tmp_path / "none.csv", table)
    (none,) = lines(certus("monitor", "run", str(tmp_path / "none.csv"), "--json", folder=place).stdout)
    assert none["realised"] is None
    file = place / "run/certificate/certificate.json"
    content = json.loads(file.read_text())
    content["brackets"][0]["error_high"] = 0.0
    (tmp_path / "certificate.json").write_text(json.dumps(content))
    options = ("--certificate", str(tmp_path / "certificate.json"))
    assert certus("monitor", "run", "same.csv", *options, folder=place).returncode in (1, 2)


@pytest.mark.usefixtures("undrawn")
def test_clusters_are_permuted_whole(place: Path) -> None:
    write(place / "all.csv", rows(2, moved_from=0))
    plain, whole = (
        lines(certus("monitor", "run", "all.csv", "--json", *more, folder=place).stdout)[0]
        for more in ((), ("--clusters", "customer"))
    )
    assert whole["distance"] == plain["distance"]
    assert whole["p_value"] <= 0.05
    done = certus("monitor", "run", "old.csv", "--clusters", "customer", folder=place)
    refused(done, "`--clusters` must lie in one of the samples each")


@pytest.mark.usefixtures("undrawn")
def test_large_files_are_read_in_pieces(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = lines(certus("monitor", "run", "same.csv", "--json", folder=place).stdout)
    monkeypatch.setattr("certus.datasets.new_data._WHOLE", 100)
    monkeypatch.setattr("certus.datasets.new_data._LINES", 37)
    (pieces,) = lines(certus("monitor", "run", "same.csv", "--json", folder=place).stdout)
    assert pieces == whole
    monkeypatch.setattr("certus.monitoring.chunks.MOST_ROWS", 50)
    (some,) = lines(certus("monitor", "run", "same.csv", "--json", folder=place).stdout)
    assert (some["rows"], some["total"]) == (50, MONTHS * COUNT)


@pytest.mark.usefixtures("undrawn")
def test_dates_that_can_be_read_in_two_ways_need_their_format(place: Path, tmp_path: Path) -> None:
    """All days are 12 or less; the run itself drops the dates."""
    new = [line | {"when": f"{at % 12 + 1:02}/{1 + at % 2:02}/2016"} for at, line in enumerate(rows(1))]
    write(tmp_path / "new.csv", new)
    asked: tuple[str, ...] = ("run", str(tmp_path / "new.csv"), "--chunks", "month", "--dates", "when")
    asked += ("-o", str(tmp_path / "m.jsonl"), "--json")
    refused(certus("monitor", *asked, folder=place), "one way only")
    done = certus("monitor", *asked, "--date-format", "%d/%m/%Y", folder=place)
    assert [line["name"] for line in lines(done.stdout)] == ["2016-01", "2016-02"], done.stderr


def test_a_category_that_the_run_never_had_raises_an_alarm(place: Path, tmp_path: Path) -> None:
    """A third of the rows."""
    new = [line | ({"town": "z"} if at % 3 == 0 else {}) for at, line in enumerate(rows(1))]
    write(tmp_path / "new.csv", new)
    answers = {}
    for name in ("same.csv", str(tmp_path / "new.csv")):
        done = certus("monitor", "run", name, "--json", "-o", str(tmp_path / "m.jsonl"), folder=place)
        (answers[name],) = lines(done.stdout)
    assert [each["verdict"] == "alarm" for each in answers.values()] == [False, True]
    assert [len(each["by_column"]) for each in answers.values()] == [2, 2]


def test_refusals(place: Path, tmp_path: Path) -> None:
    for options, message in (
        (("gone.csv",), "gone.csv"),
        (("same.csv", "--chunks", "country"), "`--chunks` must name a column of the new data"),
        (("same.csv", "--dates", "when"), "`--dates` must be left out without --chunks"),
        (("same.csv", "--columns", "wage"), "`--columns` must be among income, town"),
        (("same.csv", "--chunks", "when", "--horizon", "3"), "`--horizon` must be at least the"),
        (("same.csv", "--level", "2"), "`--level` must lie between 0 and 1"),
        (("same.csv", "--clusters", "nobody"), "`--clusters` must name a column of the new data"),
        (("same.csv", "-o", "old.csv"), "`--output` must be a file of results of certus monitor"),
    ):
        refused(certus("monitor", "run", *options, folder=place), message)
    write(tmp_path / "odd.csv", [{"income": "many", "town": "a", "label": "yes"}])
    done = certus("monitor", "run", str(tmp_path / "odd.csv"), folder=place)
    refused(done, "must hold numbers in column")
    refused(certus("monitor", "run", str(tmp_path), folder=place), "`NEW` must be one of")
    write(tmp_path / "odd.csv", [line | {"income": "many"} for line in rows(1)[:30]])
    odd, results = str(tmp_path / "odd.csv"), str(tmp_path / "m.jsonl")
    done = certus("monitor", "run", odd, "--na", "many", "-o", results, folder=place)
    assert done.returncode == 1, done.stderr  # an alarm: all incomes are missing
    header = "income,town,label\n"
    for few, message in (("", "hold at least one row"), ("1,a,yes\n", "hold at least 2 rows")):
        (tmp_path / "few.csv").write_text(header + few)
        refused(certus("monitor", "run", str(tmp_path / "few.csv"), folder=place), message)


def test_without_a_certificate_it_says_how_to_make_one(place: Path, tmp_path: Path) -> None:
    options = ("--method", "erm", "--epochs", "1", "-o", str(tmp_path / "w"))
    done = certus("train", "wine", *options, folder=place)
    assert done.returncode == 0, done.stderr
    done = certus("monitor", str(tmp_path / "w"), "wine@test", folder=place)
    refused(done, "have a certificate: certus certify")


def test_a_budget_from_history(place: Path) -> None:
    """Months that move by one and a half deviations of this month, and chunks that do not."""
    coarse = (
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
        "--attack-steps",
        "0",
        "--samples",
        "20",
        "-o",
        "past",
    )
    done = certus("certify", "run", "--rho", "from:moved.csv", *coarse, "--json", folder=place)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert 0.8 < content["rhos"][0] < 4
    assert "estimated" in content["about"]["settings"]["rho_origin"]
    assert "(estimated)" in done.stderr
    for options, message in (
        (("--rho", "from:gone.csv"), "gone.csv"),
        (("--rho", "many"), "`--rho` must be a number, or from:FILE; got 'many'"),
        (("--rho", "0.1", "--quantile", "0.5"), "`--quantile` must be left out without --rho from:FILE"),
        (("--rho", "from:moved.csv", "--quantile", "2"), "`--quantile` must lie between 0 and 1"),
    ):
        refused(certus("certify", "run", *options, *coarse, folder=place), message)
