"""Options that cannot have an effect are refused as they were typed; those that were left out never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import QUICK, certus, refused

TRAINING = {
    "erm": {
        "--tolerance 0.1": "`--tolerance` must be left out for erm: it is for wrm; got 0.1.",
        "--inner-precision bfloat16": "`--inner-precision` must be left out for erm: it is for wrm",
        "--no-clip": "`--no-clip` must be left out for erm: it is for wrm, fgsm, bim, pgd.",
        "--clip": "`--clip` must be left out for erm: ",
        "--gamma 1": "`--gamma` must be left out for erm: it is for wrm; got 1.0.",
        "--rho 1": "`--rho` must be left out for erm",
        "--cost natural": "`--cost` must be left out for erm: it is for wrm; got natural.",
        "--norm 2": "`--norm` must be left out for erm: it is for fgsm, bim, pgd; got 2.",
        "--epsilon 1": "`--epsilon` must be left out for erm",
        "--steps 15": "`--steps` must be left out for erm: it is for bim, pgd; got 15.",
        "--step-size 1": "`--step-size` must be left out for erm",
        "--schedule cosine --epochs 1": "`--schedule` must be left out with --epochs 1: it changes the rate",
        "--target age": "`--target` must be left out for digits: it is for csv:FILE and parquet:FILE;",
        "--no-standardize": "`--no-standardize` must be left out for digits, which is not a table.",
    },
    "wrm": {
        "--norm 2": "`--norm` must be left out for wrm",
        "--epsilon 1": "`--epsilon` must be left out for wrm",
        "--steps 3": "`--steps` must be left out for wrm",
        "--standardize": "`--standardize` must be left out for digits, which is not a table.",
    },
    "fgsm --epsilon 1": {
        "--steps 3": "`--steps` must be left out for fgsm",
        "--step-size 1": "`--step-size` must be left out for fgsm: it is for bim, pgd; got 1.0.",
    },
    "pgd --epsilon 1": {
        "--tolerance 0.1": "`--tolerance` must be left out for pgd: it is for wrm; got 0.1.",
        "--gamma 1": "`--gamma` must be left out for pgd",
        "--cost linf": "`--cost` must be left out for pgd: it is for wrm; got linf.",
    },
}


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [(method, options, message) for method, table in TRAINING.items() for options, message in table.items()],
)
def test_training(method: str, options: str, message: str, tmp_path: Path) -> None:
    refused(
        certus("train", "digits", "--method", *method.split(), *options.split(), folder=tmp_path), message
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("diabetes", "--no-clip", "`--no-clip` must be left out for diabetes, whose inputs have no bounds."),
        ("rings", "--no-standardize", "`--no-standardize` must be left out for rings, which is not a table."),
        (
            "diabetes",
            "--label-smoothing 0.1",
            "`--label-smoothing` must be left out for diabetes",
        ),
        (
            "diabetes",
            "--margin 1",
            "`--margin` must be left out for diabetes, a regression: it",
        ),
        ("diabetes", "--temperature 2", "`--temperature` must be left out for diabetes"),
        (
            "wine",
            "--translate 1",
            "`--translate` must be left out for wine, whose inputs are not images; got 1.",
        ),
        (
            "wine",
            "--affine 0.1",
            "`--affine` must be left out for wine, whose inputs are not images; got 0.1.",
        ),
    ],
)
def test_training_on_other_data(data: str, options: str, message: str, tmp_path: Path) -> None:
    refused(certus("train", data, *options.split(), folder=tmp_path), message)


@pytest.mark.parametrize(
    "options",
    [
        "wine --no-standardize --translate 0 --affine 0 --tolerance 0.01 --gamma 2",
        "digits --method erm --label-smoothing 0.1 --translate 1 --weight-decay 0.1",
        "digits --method erm --certified --gamma 2 --model certified-mlp:8",
        "digits --method pgd --epsilon 0.1 --steps 2 --step-size 0.1 --no-clip",
    ],
)
def test_options_with_an_effect_are_accepted(options: str, tmp_path: Path) -> None:
    done = certus("train", *options.split(), "--epochs", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two runs of ordinary training on images, and one on numbers."""
    made = tmp_path_factory.mktemp("idle")
    for name, data in (("images", "digits"), ("other", "digits"), ("numbers", "diabetes")):
        done = certus("train", data, *QUICK, "--method", "erm", "-o", name, folder=made)
        assert done.returncode == 0, done.stderr
    return made


IMPORT = "import --weights w --data digits --model mlp:8:elu -o new"
BUILT_IN = (
    "`--model` must be left out for a network that certus builds itself: images (mlp:8:elu); got a.py:b."
)
NEAREST = "must be left out with --nearest, which searches all distances"
USING = {
    "resume images --model a.py:b": BUILT_IN,
    f"{IMPORT} --target x": "`--target` must be left out for digits: it is for csv:FILE and parquet:FILE;",
    f"{IMPORT} --no-standardize": "`--no-standardize` must be left out for digits, which is not a table.",
    "smoothness images --model a.py:b": BUILT_IN,
    "smoothness images --samples 0 --seed 1": "`--seed` must be left out with --samples 0",
    "attack images --epsilon 1 --model a.py:b": BUILT_IN,
    "attack images --epsilon 1 --gamma 1": "`--gamma` must be left out for pgd: it is for wrm; got 1.0.",
    "attack images --attack wrm --gamma 1 --epsilon 1": "`--epsilon` must be left out for wrm",
    "attack images --attack wrm --gamma 1 --norm 2": "`--norm` must be left out for wrm",
    "attack images --attack wrm --gamma 1 --relative": "`--relative` must be left out for wrm",
    "attack images --attack wrm --gamma 1 --steps 3": "`--steps` must be left out for wrm",
    "attack images --attack fgsm --epsilon 1 --steps 1": "`--steps` must be left out for fgsm",
    "attack images --attack fgsm --epsilon 1 --restarts 1": "`--restarts` must be left out for fgsm",
    "attack images --attack fgsm --epsilon 1 --seed 0": "`--seed` must be left out for fgsm without",
    "attack numbers --epsilon 1 --no-clip": "`--no-clip` must be left out for diabetes",
    "attack images --nearest --attack pgd": "`--attack` must be left out with --nearest, or be wrm; got pgd.",
    "attack images --nearest --gamma 1": f"`--gamma` {NEAREST}",
    "attack images --nearest --plot a.png": f"`--plot` {NEAREST}",
    "attack images --nearest --relative": f"`--relative` {NEAREST}.",
    "compare images other --attack fgsm --epsilon 1 --restarts 2": "`--restarts` must be left out for fgsm",
    "compare images other --epsilon 1 --model a.py:b": "`--model` must belong to one of the runs images",
    "certify images --rho 1 --inequality betting": "`--inequality` must be left out without --confidence: it",
    "certify images --rho 1 --seed 1": "`--seed` must be left out without --samples and --confidence",
    "certify images --rho 1 --model a.py:b": BUILT_IN,
    "certify numbers --epsilon 1": "`--epsilon` must be left out for diabetes, a regression",
    "certify numbers --rho 1 --label-cost 1": "`--label-cost` must be left out for diabetes, a regression",
    "certify numbers --rho 1 --unbounded": "`--unbounded` must be left out for numbers, whose",
    "certify numbers --rho 1 --own-labels": "`--own-labels` must be left out for diabetes, a regression",
    "distance wine@test wine@train --model a.py:b": "`--model` must be left out without --run: it names",
    "distance digits@test digits@train --run images --model a.py:b": BUILT_IN,
    "distance diabetes@test diabetes@train --label-cost 1": "`--label-cost` must be left out for diabetes",
}


@pytest.mark.parametrize(("arguments", "message"), USING.items(), ids=USING)
def test_using_a_run(arguments: str, message: str, folder: Path) -> None:
    refused(certus(*arguments.split(), folder=folder), message)
