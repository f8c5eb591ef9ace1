"""A messy table from the command line: train, predict, what is fragile, what if, export; from any folder."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch

import certus as library
from certus.display.canvas import COLOURS
from certus.display.report.contents import train_command
from certus.runs import RunDirectory
from certus.runs.factory import features_of, named_feature
from certus.runs.loaded_run import open_run
from certus.runs.sensitivity import move_feature
from tests.cli.test_cli import certus, refused
from tests.datasets.test_tables import COUNT, messy, write
from tests.pictures import pixels_of


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a messy table, and a later table without a target."""
    place = tmp_path_factory.mktemp("shop")
    columns = messy()
    columns["age"] = [None if at % 10 == 3 else 30.0 + 20 * (at % 4 == 0) + at % 3 for at in range(COUNT)]
    write(place / "old.csv", columns)
    later = messy() | {"town": ["Basel"] * 10 + ["Bern"] * 30}
    del later["bought"]
    write(place / "new.csv", later)
    done = certus(
        *("train", "csv:old.csv", "--target", "bought", "--drop", "rate", "--split", "stratified"),
        *("--date-features", "trend,season"),
        *("--epochs", "40", "--model", "mlp:4:elu", "--gamma", "2", "--lr", "0.05", "-o", "run"),
        folder=place,
    )
    assert done.returncode == 0, done.stderr
    assert "dropped: asked for" in done.stderr
    assert "dropped: an identifier" in done.stderr
    assert "Balanced accuracy" in done.stdout
    return place


def test_predictions_agree_with_the_network(shop: Path) -> None:
    done = certus("predict", "run", "new.csv", folder=shop)
    assert done.returncode == 0, done.stderr
    assert "25.00% of 'town' count as unknown, a category that no row of the run had: Basel." in done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == COUNT
    trained = library.load_run(shop / "run")
    said = json.loads(
        certus("predict", str(shop / "run"), str(shop / "new.csv"), "--json", folder=Path("/")).stdout
    )
    for row, other in zip(rows, said["rows"], strict=True):
        shares = [float(row["p(no)"]), float(row["p(yes)"])]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert row["label"] == ("no", "yes")[shares[1] > shares[0]]
        assert float(row["radius"]) >= 0
        assert other["label"] == row["label"]
    assert trained.settings.drop == "rate"
    # The radius is proven: no move shorter than it changes a label.
    inputs = trained.data.test.inputs
    test = certus("predict", "run", "old.csv", "-o", "said/new/old.csv", folder=shop)
    assert test.stdout == ""
    assert "agree with the target column" in test.stderr
    written = (shop / "said/new/old.csv").read_text()  # in folders that were not there
    radii = [float(row["radius"]) for row in csv.DictReader(io.StringIO(written))]
    rows_there = trained.data.rows["test"].tolist()
    own = trained.model(inputs).argmax(1)
    generator = torch.Generator().manual_seed(0)
    weights = trained.data.weights
    assert weights is not None
    for at, row in enumerate(rows_there):
        move = torch.randn(64, inputs.shape[1], generator=generator)
        move = move / (weights * move**2).sum(1, keepdim=True).sqrt() * radii[row] * 0.999
        near = trained.domain.project(inputs[at] + move)
        assert (trained.model(near).argmax(1) == own[at]).all()


def test_refusals_of_predict(shop: Path) -> None:
    (shop / "bad.csv").write_text("age,town\n1,Bern\n")
    refused(
        certus("predict", "run", "bad.csv", folder=shop), "the run was trained with; income, since missing"
    )
    refused(certus("predict", "run", "wine", folder=shop), "must be a CSV or Parquet file")
    refused(certus("predict", "run", "new.csv", "--reach", "0", folder=shop), "`--reach` must be positive")
    refused(certus("predict", "run", "new.csv", "--no-radius", "--reach", "1", folder=shop), "left out with")


def test_fragile_features_are_sorted_and_bracketed(shop: Path) -> None:
    done = certus("sensitivity", "run", "--samples", "8", "--json", "--plot", "bars.png", folder=shop)
    assert done.returncode == 0, done.stderr
    assert pixels_of(shop / "bars.png")[COLOURS[0]] > 10
    found = json.loads(done.stdout)["features"]
    assert {one["feature"] for one in found} == {"age", "town", "income", "since"}
    highs = [one["error_high"] for one in found]
    assert highs == sorted(highs, reverse=True)
    for one in found:
        assert one["error_low"] <= one["error_high"]
        assert one["loss_low"] <= one["loss_high"]
        assert one["evidence"] == "proven"
    shown = certus("sensitivity", "run", "--samples", "8", folder=shop)
    assert "root mean square of 0.1 of its standard deviation" in shown.stdout


def test_a_single_feature_that_moves(shop: Path) -> None:
    done = certus("sensitivity", "run", "--feature", "age", "--by", "2", "--samples", "8", folder=shop)
    assert done.returncode == 0, done.stderr
    assert "If age moves by a root mean square of 2, the error can reach" in done.stdout
    told = json.loads(
        certus(
            "sensitivity", "run", "--feature", "age", "--by", "2", "--samples", "8", "--json", folder=shop
        ).stdout
    )
    trained = open_run(RunDirectory.open(shop / "run"))
    feature = named_feature(trained.data, "age")
    assert trained.data.input_scale is not None
    assert told["rho"] == pytest.approx((2 / float(trained.data.input_scale[1][feature.columns[0]])) ** 2)
    # Every sample moved by 2 years is one of these distributions: its loss is below the bound.
    rows = trained.data.test
    for sign in (-1, 1):
        moved = rows.inputs.clone()
        moved[:, feature.columns[0]] += sign * 2 / feature.scale
        loss = float(trained.loss(moved, rows.targets).detach().mean())
        assert loss <= move_feature(trained, rows, feature, told["rho"]).bracket.loss_high
    town = certus("sensitivity", "run", "--feature", "town", "--by", "0.1", "--samples", "8", folder=shop)
    assert "If 10.0% of the rows (0 of 8) change town" in town.stdout
    refused(
        certus("sensitivity", "run", "--feature", "shoe", "--by", "1", folder=shop),
        "`--feature` must be one of age",
    )
    refused(
        certus("sensitivity", "run", "--feature", "town", "--by", "2", folder=shop),
        "at most 1, for a category",
    )
    refused(
        certus("sensitivity", "run", "--feature", "age", "--by", "0", folder=shop), "`--by` must be positive"
    )


def test_an_exported_network_is_the_same(shop: Path) -> None:
    done = certus("export", "run", "-o", "made/net.pt2", folder=shop)
    assert done.returncode == 0, done.stderr
    again = torch.export.load(shop / "made/net.pt2").module()
    trained = library.load_run(shop / "run")
    for count in (1, 7):
        inputs = trained.data.train.inputs[:count]
        torch.testing.assert_close(again(inputs), trained.model(inputs), rtol=1e-6, atol=1e-6)


def test_the_folder_of_the_data_is_no_option(shop: Path) -> None:
    """The command that makes a run again is one that can be typed."""
    told = train_command(library.load_run(shop / "run").settings, "run", imported=False)
    assert "--drop rate --date-features trend,season --split stratified" in told
    assert "folder" not in told


def test_features_of_a_table_have_names(shop: Path) -> None:
    trained = library.load_run(shop / "run")
    by_name = {one.name: one for one in features_of(trained.data)}
    assert by_name["town"].category
    assert len(by_name["town"].columns) == 4
    assert not by_name["age"].category
    with pytest.raises(library.CertusError, match="must be on a table"):
        features_of(library.datasets.digits())


def test_a_shift_without_labels_says_which_columns_moved(shop: Path) -> None:
    done = certus("distance", "csv:old.csv", "csv:new.csv", "--run", "run", folder=shop)
    assert done.returncode == 0, done.stderr
    assert "csv:new.csv has no target column" in done.stderr
    assert "estimated" in done.stdout
    lines = [
        line.split()[0]
        for line in done.stdout.splitlines()
        if line.startswith(("town", "age", "income", "since"))
    ]
    assert "town" in lines
    found = json.loads(
        certus("distance", "csv:old.csv", "csv:new.csv", "--run", "run", "--json", folder=shop).stdout
    )
    moved = {one["feature"]: one["cost"] for one in found["features"]}
    # A quarter of the rows is in Basel, which no row was: that is as much of a change of category.
    assert moved["town"] >= 0.25 - 1e-9
    assert moved["income"] == pytest.approx(0, abs=1e-9)
