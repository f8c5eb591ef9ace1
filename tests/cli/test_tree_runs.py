"""Runs of tree models: imported by content, certified, verified, with clear refusals."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus._format import at_most
from certus.certificates.files import read_certificate, write_certificate
from certus.certificates.trees import EncodedRows, certify_trees
from certus.errors import VerificationError
from certus.kernel.evidence import Evidence
from certus.runs.settings import CertifySettings
from certus.runs.tree_run import certify_tree_run, chosen_rows, load_tree_run, verify_for_tree_run
from tests.cli.test_cli import certus, refused

HERE = ("--data", "csv:people.csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose target is words, a LightGBM file, and a pickled pipeline of a regression."""
    place, random = tmp_path_factory.mktemp("trees"), np.random.default_rng(0)
    inputs = random.normal(size=(60, 2)).round(3)
    labels = np.where(inputs[:, 0] * inputs[:, 1] > 0, "yes", "no")
    lines = [f"{a},{b},{label}" for (a, b), label in zip(inputs, labels, strict=True)]
    (place / "people.csv").write_text("\n".join(["age,size,pays", *lines]))
    lines = [f"{a},{b},{a + abs(b):.4f}" for a, b in inputs]
    (place / "prices.csv").write_text("\n".join(["age,size,price", *lines]))
    model = LGBMClassifier(n_estimators=3, num_leaves=4, min_child_samples=5, verbose=-1)
    model.fit(inputs, labels).booster_.save_model(place / "model.dat")
    pipeline = make_pipeline(StandardScaler(), GradientBoostingRegressor(n_estimators=3, max_depth=2))
    joblib.dump(pipeline.fit(inputs, inputs[:, 0] + abs(inputs[:, 1])), place / "model.joblib")
    return place


def test_a_file_is_imported_certified_and_verified(folder: Path) -> None:
    done = certus("import", "model.dat", *HERE, "--target", "pays", "-o", "runs/b", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["right"] > 0.9
    assert content["trees"] == 3
    certify = ("certify", "runs/b", "--rho", "0.01", "--samples", "4", "--epsilon", "0.1", "--json")
    done = certus(*certify, folder=folder)
    assert done.returncode == 0, done.stderr
    certificate = json.loads(done.stdout)
    (bracket,) = certificate["brackets"]
    assert certificate["evidence"] == "proven"
    assert bracket["error_low"] <= bracket["error_high"] <= 1.05 * bracket["error_low"] + 1e-9
    file = "runs/b/certificate/certificate.json"
    done = certus("verify", file, folder=folder)
    assert done.returncode == 0, done.stderr
    refused(certus("verify", file, "--recompute", folder=folder), "--recompute")
    page = ("report", "runs/b", "-o", "page.html", "--require", "error<=100%@rho=0.01")
    done = certus(*page, folder=folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "page.html").read_text()
    assert '<div class="verdict pass"' in text
    assert f"≤ {at_most(100 * bracket['error_high'], 1)}%" in text[: text.index("<script")]
    assert "certus monitor" not in text[: text.index("<script")]
    for name in ("one.zip", "two.zip"):
        done = certus("bundle", "runs/b", "-o", name, folder=folder)
        assert done.returncode == 0, done.stderr
    assert (folder / "one.zip").read_bytes() == (folder / "two.zip").read_bytes()
    with zipfile.ZipFile(folder / "one.zip") as archive:
        assert b"What can be relied on" in archive.read("report.html")
    refused(certus("report", "runs/b", "--samples", "5", folder=folder), "--samples")
    refused(certus("attack", "runs/b", "--epsilon", "0.1", folder=folder), "tree model")
    done = certus("sensitivity", "runs/b", "--samples", "6", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    features = {each["feature"]: each for each in json.loads(done.stdout)["features"]}
    assert set(features) == {"age", "size"}
    assert all(each["error_low"] <= each["error_high"] for each in features.values())
    refused(certus("sensitivity", "runs/b", "--split", "test", folder=folder), "--split")
    done = certus("runs", "--json", folder=folder)
    assert "runs/b" in [row["run"] for row in json.loads(done.stdout)]
    stated = (folder / file).read_text()
    (folder / file).write_text(stated.replace('"error_high"', '"error_higher"'))
    assert certus("verify", file, folder=folder).returncode != 0


def test_a_certificate_of_other_prices_or_trees_is_not_of_the_run(folder: Path, tmp_path: Path) -> None:
    """The kernel proves it from its files, as it stands; for the run it is refused."""
    done = certus("import", "model.dat", *HERE, "--target", "pays", "-o", "runs/c", folder=folder)
    assert done.returncode == 0, done.stderr
    run, settings = load_tree_run(folder / "runs/c"), CertifySettings(rho=(0.01,), samples=4)
    rows = chosen_rows(run, settings).data
    dear = replace(run.prices, move=run.prices.move * 1e6)
    bias = replace(run.reading.ensemble, bias=run.reading.ensemble.bias + 10)
    others = {"cost": (run.reading, dear), "ensemble": (replace(run.reading, ensemble=bias), run.prices)}
    for name, (reading, prices) in others.items():
        data = EncodedRows(rows.inputs, rows.targets)
        certificate = certify_trees(reading, data, rho=0.01, cost=prices, time_limit=0.1)
        write_certificate(certificate, tmp_path / "certificate.json")
        read = read_certificate(tmp_path / "certificate.json")
        assert read.verify(rows).statement.evidence == Evidence.PROVEN
        with pytest.raises(VerificationError, match=f"it is not about the {name} of the run"):
            verify_for_tree_run(read, run, settings, rows)


def test_code_is_executed_only_where_it_is_allowed(folder: Path) -> None:
    options = ("--data", "csv:prices.csv", "-o", "runs/j")
    refused(certus("import", "model.joblib", *options, folder=folder), "--allow-code")
    done = certus("import", "model.joblib", *options, "--allow-code", folder=folder)
    assert done.returncode == 0, done.stderr
    certify = ("certify", "runs/j", "--rho", "0.01", "--samples", "3")
    refused(certus(*certify, folder=folder), "--allow-code")
    done = certus(*certify, "--allow-code", "--time-limit", "60", folder=folder)
    assert done.returncode == 0, done.stderr


def test_labels_in_another_order_are_noticed(folder: Path) -> None:
    """A file without names has its classes in the order of the sorted labels."""
    text = (folder / "people.csv").read_text()
    (folder / "swapped.csv").write_text(text.replace("yes", "agreed").replace(",no", ",refused"))
    (folder / "renamed.csv").write_text(text.replace("yes", "refused").replace(",no", ",agreed"))
    said = []
    for name in ("swapped", "renamed"):
        options = ("--data", f"csv:{name}.csv", "-o", f"runs/{name}")
        done = certus("import", "model.dat", *options, folder=folder)
        assert done.returncode == 0, done.stderr
        said.append("more often" in " ".join(done.stdout.split()))
    assert said == [True, False]


def test_gaps_have_prices(folder: Path) -> None:
    """Cells may go missing at a price, in a worst table that the model itself predicts otherwise."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(80, 2)).round(3)
    inputs[random.random(80) < 0.4, 0] = np.nan
    labels = np.where(np.isnan(inputs[:, 0]), "no", "yes")
    lines = [f"{'' if np.isnan(a) else a},{b},{label}" for (a, b), label in zip(inputs, labels, strict=True)]
    (folder / "gaps.csv").write_text("\n".join(["age,size,pays", *lines]))
    model = LGBMClassifier(n_estimators=5, num_leaves=3, min_child_samples=5, verbose=-1)
    model.fit(inputs, labels).booster_.save_model(folder / "gaps.dat")
    costs = {}
    for name, options in {"free": (), "gaps": ("--gap-cost", "age=0.25")}.items():
        run = folder / "runs" / name
        done = certus(
            "import", "gaps.dat", "--data", "csv:gaps.csv", "-o", f"runs/{name}", *options, folder=folder
        )
        assert done.returncode == 0, done.stderr
        certificate = certify_tree_run(load_tree_run(run), CertifySettings(rho=(0.1,), samples=10))
        assert certificate.attained_error_cost is not None
        assert certificate.proven_error_cost is not None
        costs[name] = certificate.attained_error_cost.tolist(), certificate.proven_error_cost.tolist()
    # The label says whether the age is missing: an error costs 0.25 in each row, and ∞ without a price.
    assert costs["gaps"][0] == pytest.approx([0.25] * 10)
    assert costs["gaps"][1] == pytest.approx([0.25] * 10, rel=0.05)
    assert costs["free"][1] == [np.inf] * 10
    (folder / "whole.csv").write_text("age,size,price\n1,2,3\n2,3,4")
    place = ("model.joblib", "--data", "csv:whole.csv", "--allow-code", "--gap-cost", "age=1")
    refused(certus("import", *place, "-o", "runs/none", folder=folder), "whose gaps the model takes")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("model.dat", *HERE, "--target", "age"), "numbers in column 'pays'"),
        (("model.dat", *HERE, "--target", "wage"), "'wage'"),
        (("model.dat", *HERE, "--drop", "age"), "have 2 columns"),
        (("model.dat", "--data", "digits"), "csv:FILE"),
        (("people.csv", *HERE), "XGBoost (.json, .ubj)"),
        (("model.dat", *HERE, "--model", "mlp:4"), "--model"),
        (("model.dat", *HERE, "--feature-cost", "wage=2"), "wage"),
        (("model.dat", *HERE, "--gap-cost", "wage=2"), "--gap-cost"),
        (("model.dat", *HERE, "--gap-cost", "age=0"), "be positive"),
        (HERE, "MODEL_FILE"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, options: tuple[str, ...], words: str) -> None:
    refused(certus("import", *options, "-o", "runs/none", folder=folder), words)
    assert not (folder / "runs" / "none").exists()
