"""Each benchmark measures, however little, and says how."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.scripts import Script, read


def test_certificates_updates_its_entries_alone(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "new/certificates.json"
    output.parent.mkdir()
    output.write_text('{"mlp": "kept"}')
    script(
        "benchmarks.certificates",
        "--entries",
        "mlp_1000",
        "--share",
        0.01,
        "--data",
        images,
        "--output",
        output,
    )
    found = read(output)
    assert found["mlp"] == "kept"
    assert found["mlp_1000"]["images"] == 10
    assert found["mlp_1000"]["measured"]["options"]["share"] == 0.01
    assert found["mlp_1000"]["measured"]["threads"] == 1
    assert len(found["mlp_1000"]["brackets"]) == 20


def test_inner(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "inner.json"
    sizes = ("--batch-size", 4, "--samples", 4, "--repeats", 1)
    script("benchmarks.inner", "--train-steps", 1, 2, "--tolerances", 0.01, *sizes, "--output", output)
    found = read(output)
    assert [row["train_steps"] for row in found["rows"]] == [1, 2]
    assert found["measured"]["options"]["tolerances"] == [0.01]
    assert found["measured"]["versions"]["torch"] == torch.__version__


def test_image_slopes(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "image_slopes.json"
    script("benchmarks.image_slopes", "--images", 12, "--repeats", 1, "--output", output)
    found = read(output)
    assert len(found["rows"]) == 3
    assert all(row["ratio"] > 0 for row in found["rows"])


def test_proximal(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "proximal.json"
    sizes = ("--batch-size", 2, "--numbers", 8, "--samples", 2, "--train-steps", 1, "--repeats", 1)
    script("benchmarks.proximal", *sizes, "--gammas", 50, "--output", output)
    found = read(output)
    assert [row["gamma"] for row in found["ascent"]] == [50]
    assert found["step_over_gradient"]["L1 in a box"] > 0


def test_attacks(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "attacks.json"
    sizes = ("--batch-size", 2, "--steps", 1, "--turns", 1, "--slow-turns", 1)
    script("benchmarks.attacks", "--entries", "inf", *sizes, "--output", output)
    found = read(output)
    assert list(found) == ["inf"]
    assert found["inf"]["times_certus"]["bare gradients"]["median"] > 0


def test_certified(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "certified.json"
    sizes = ("--samples", 128, "--repeats", 1)
    script("benchmarks.certified", "--entries", "digits", *sizes, "--output", output)
    found = read(output)["digits"]
    assert found["ratio"] == found["certified"] / found["plain"]


def test_smoothness(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "smoothness.json"
    sizes = ("--share", 1e-3, "--batch-size", 4, "--data", images)
    script("benchmarks.smoothness", *sizes, "--output", output)
    found = read(output)
    assert found["mlp"]["images"] == 10
    assert found["mlp"]["median"] <= found["mlp"]["everywhere"]
    assert found["cnn"]["sampled"] <= min(found["cnn"]["bounds"].values())


def test_training_measures_although_there_is_a_result(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "training.json"
    output.write_text('{"early": "kept", "epoch": "measured before"}')
    sizes = ("--share", 1e-3, "--batch-size", 4, "--evaluated", 4, "--data", images)
    script("benchmarks.training", "--entries", "epoch", *sizes, "--output", output)
    found = read(output)
    assert found["early"] == "kept"
    assert found["epoch"]["steps"] == 2
    (run,) = found["epoch"]["runs"]
    times = run["processor seconds of each step"]
    assert len(times["erm"]) == len(times["wrm"]) == 2
    assert not output.with_suffix(".unfinished.json").exists()


def test_drift(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "drift.json"
    sizes = ("--splits", 3, "--repeats", 2, "--rows", 30, "--rounds", 19, "--peers", "none")
    script("benchmarks.drift", *sizes, "--entries", "wine", "one-moves", "--output", output)
    measured = read(output)
    assert measured["wine"]["shares"][""]["certus"]["pairs"] == 3
    assert measured["one-moves"]["shares"]["1.6"]["certus"]["pairs"] == 2


def test_trees(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "trees.json"
    entry = "breast cancer, 100 x 8"
    script("benchmarks.trees", "--entries", entry, "--most-rows", 2, "--output", output)
    measured = read(output)[entry]
    assert measured["rows"] == 2
    assert all(each["error_low"] <= each["error_high"] for each in measured["brackets"])
    assert f"| {entry} | 2 |" in output.with_suffix(".md").read_text()
    assert output.with_suffix(".png").exists()


def test_rows(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    script("benchmarks.rows", "--rows", 30, "--hidden", 4, "--output", output)
    (row,) = read(output)["rows"]
    assert row["loss"][0] <= row["loss"][1]
    assert row["milliseconds_a_row"] > 0


def test_page(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "measured.json"
    ask = ("--turns", 3, "--scale", 0.02, "--output", output)
    script("benchmarks.page", *ask, "--rows", "certify 1,024")
    script("benchmarks.page", *ask, "--rows", "a WRM step by hand")
    rows = read(output)["rows"]
    assert set(rows) == {"certify 1,024 rows", "a WRM step by hand, 15 gradients"}
    assert all(
        0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"] for row in rows.values()
    )
    assert "certify 1,024 rows | certify 512 rows" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "ratios.png").stat().st_size > 1000
