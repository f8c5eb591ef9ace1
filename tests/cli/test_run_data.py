"""``--run-data``: where a run's own data are now, for every command that opens a run; and what is said of
new data."""

from __future__ import annotations

from pathlib import Path

import pytest

import certus as library
from certus.errors import ArgumentError
from certus.runs import RunDirectory
from certus.runs.factory import read_settings
from certus.storage.files import RunError
from tests.cli.test_cli import certus, refused
from tools.soak.entries import commands

HERE = "csv:kept/people.csv"
OPENING = {
    "attack": "attack run --epsilon 0.1",
    "smoothness": "smoothness run",
    "certify": "certify run --rho 0.01",
    "compare": "compare run run2 --epsilon 0.1",
    "export": "export run",
    "sensitivity": "sensitivity run",
    "predict": "predict run new.csv",
    "report": "report run",
    "resume": "resume begun",
    "distance": "distance csv:new.csv csv:new.csv --run run",
    "verify": "verify run/certificate/certificate.json",
    "merge": "merge run/certificate -o whole",
    "gate": "gate run --require error<=0.9",
    "monitor": "monitor run new.csv",
    "bundle": "bundle run -o evidence.zip",
}


def table(towns: str, count: int = 40) -> str:
    rows = [f"{20 + at},{towns.split()[at % 2]},{'yes' if at % 3 else 'no'}" for at in range(count)]
    return "\n".join(["age,town,bought", *rows]) + "\n"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, one of them certified and one begun, whose table was then moved."""
    place = tmp_path_factory.mktemp("moved")
    (place / "people.csv").write_text(table("Bern Chur"))
    (place / "new.csv").write_text(table("Bern Genf"))
    train = ("train", "csv:people.csv", "--epochs", "1", "--model", "mlp:2:elu", "--gamma", "2", "-o")
    for name in ("run", "run2", "begun"):
        assert certus(*train, name, folder=place).returncode == 0
    done = certus("certify", "run", "--rho", "0.01", "--gamma", "2", *QUICK, folder=place)
    assert done.returncode == 0, done.stderr
    (place / "begun/result.json").unlink()
    (place / "kept").mkdir()
    (place / "people.csv").rename(place / "kept/people.csv")
    return place


QUICK = ("--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0")


def test_every_command_that_opens_a_run_has_it() -> None:
    having = {name for name, command in commands().items() if "run_data" in {o.name for o in command.params}}
    opening = {name for name, command in commands().items() if "model" in {o.name for o in command.params}}
    assert having == set(OPENING)
    assert opening - having == {"train", "import", "audit"}  # which need no run


@pytest.mark.parametrize("line", OPENING.values(), ids=OPENING.keys())
def test_it_is_where_the_data_are_looked_for(line: str, moved: Path) -> None:
    done = certus(*line.split(), "--run-data", "npz:nowhere", folder=moved)
    refused(done, "`--run-data` must begin with csv: as the run's data do; got npz:nowhere.")


def test_moved_data(moved: Path) -> None:
    lost = certus("predict", "run", "new.csv", folder=moved)
    refused(lost, "which does not exist now; give its new location with --run-data csv:PATH.")
    assert "people.csv" in lost.stderr
    found = certus("predict", "run", "new.csv", "--no-radius", "--run-data", HERE, folder=moved)
    assert found.returncode == 0, found.stderr
    again = ("verify", "run/certificate/certificate.json", "--run-data", HERE)
    assert certus(*again, folder=moved).returncode == 0
    other = certus("export", "run", "--run-data", "csv:new.csv", folder=moved)
    refused(other, "run was started with other data: the sha256 of csv:new.csv differs now.")
    alone = certus("distance", "digits", "digits", "--run-data", HERE, folder=moved)
    refused(alone, "without --run: it locates the data of a run")


def test_in_python(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(moved)
    with pytest.raises(RunError, match=r"which does not exist now"):
        library.load_run("run")
    trained = library.load_run("run", data=HERE)
    assert trained.data.name == "csv:people.csv"  # what it is called stays
    assert len(trained.data.train) == 24
    named = RunDirectory(moved / "run", "csv:x.csv")
    assert read_settings(named).folder == f"csv:{moved.resolve()}/x.csv"


def test_named_data_have_no_place(tmp_path: Path) -> None:
    done = certus("train", "wine", "--epochs", "1", "--model", "mlp:2:elu", "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ArgumentError, match=r"`run_data` must be left out for wine"):
        library.load_run(tmp_path / "run", data="csv:wine.csv")


def test_certify_says_what_new_data_lack(moved: Path) -> None:
    ask = ("certify", "run", "--rho", "0.01", "--gamma", "2", *QUICK, "--run-data", HERE, "-o", "other")
    done = certus(*ask, "--data", "csv:new.csv", folder=moved)
    assert done.returncode == 0, done.stderr
    said = "50.00% of 'town' count as unknown, a category that no row of the run had: Genf."
    assert done.stderr.count(said) == 1
    assert "unknown" not in certus(*ask, folder=moved).stderr
