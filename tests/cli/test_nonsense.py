"""Numbers that mean nothing are refused in one line that names the option, its rule and the value."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from certus.datasets import load
from certus.errors import ArgumentError
from certus.models import build_model
from certus.runs.settings import CertifySettings, Settings
from tests.cli.test_cli import certus, refused
from tests.runs.test_checksums import made

__all__ = ["made"]

TRAIN = ["train", "csv:a.csv", "--gamma", "2", "-o", "new"]
CERTIFY = ["certify", "run", "--rho", "0.1"]
REFUSED = {
    "rate": ([*TRAIN, "--lr", "1e300"], "`--lr` must be at most 1e+30; got 1e+300"),
    "decay": ([*TRAIN, "--weight-decay", "1e308"], "`--weight-decay` must be at most 1e+30; got 1e+308"),
    "tolerance": ([*TRAIN, "--tolerance", "inf"], "`--tolerance` must be finite and not negative; got inf"),
    "device": ([*TRAIN, "--device", "mps"], "`--device` must be a device of this machine: auto, cpu"),
    "no tolerance": (
        [*TRAIN, "--tolerance", "nan"],
        "`--tolerance` must be finite and not negative; got nan",
    ),
    "rho": (["certify", "run", "--rho", "1e300"], "`--rho` must be at most 1e+30; got 1e+300"),
    "no rho": (["certify", "run", "--rho", "nan"], "`--rho` must be finite and not negative; got nan"),
    "epsilon": (["certify", "run", "--epsilon", "1e300"], "`--epsilon` must be at most 1e+30; got 1e+300"),
    "noise": ([*TRAIN, "--noise", "1e300"], "`--noise` must be at most 1e+30; got 1e+300"),
    "margin": ([*TRAIN, "--margin", "1e308"], "`--margin` must be at most 1e+30; got 1e+308"),
    "smoothing": ([*CERTIFY, "--smoothing", "1e300"], "`--smoothing` must be at most 1e+30; got 1e+300"),
    "no smoothing": ([*CERTIFY, "--smoothing", "0"], "`--smoothing` must be positive and finite; got 0"),
    "clip": ([*CERTIFY, "--clip", "1e308"], "`--clip` must be at most 1e+30; got 1e+308"),
    "price": ([*CERTIFY, "--label-cost", "1e300"], "`--label-cost` must be at most 1e+30; got 1e+300"),
    "gamma": ([*CERTIFY, "--gamma", "1e-300"], "`--gamma` must be at least 1e-30; got 1e-300"),
    "balls": ([*CERTIFY, "--local-radii", "1" + "0" * 30], "`--local-radii` must lie between 0 and 10000"),
    "nonsense": (
        [*CERTIFY, "--inequality", "betting"],
        "`--inequality` must be left out without --confidence",
    ),
    "nonsense for people": (
        [*CERTIFY, "--inequality", "nonsense", "--confidence", "0.9"],
        "`--inequality` must be one of",
    ),
    "restarts": (
        ["attack", "run", "--nearest", "--restarts", "-1"],
        "`--restarts` must be a whole number, at least 1; got -1",
    ),
    "no restarts": (
        ["attack", "run", "--epsilon", "0.1", "--restarts", "-1"],
        "`--restarts` must be a whole number, at least 1; got -1",
    ),
    "steps": (
        ["attack", "run", "--nearest", "--steps", "0"],
        "`--steps` must be a whole number, at least 1; got 0",
    ),
    "share": (["sensitivity", "run", "--share", "1e300"], "`--share` must be at most 1e+30; got 1e+300"),
    "costly share": (
        ["sensitivity", "run", "--share", "1e29"],
        "`--share` must be a move that costs from 1e-30 to 1e+30; got 1e+29, which costs",
    ),
    "move": (
        ["sensitivity", "run", "--feature", "x", "--by", "1e300"],
        "`--by` must be at most 1e+30; got 1e+300",
    ),
    "costly move": (
        ["sensitivity", "run", "--feature", "x", "--by", "1e29"],
        "`--by` must be a move that costs from 1e-30 to 1e+30; got 1e+29, which costs",
    ),
    "reach": (["predict", "run", "a.csv", "--reach", "1e300"], "`--reach` must be at most 1e+30; got 1e+300"),
    "price of a shift": (
        ["distance", "csv:a.csv", "csv:a.csv", "--label-cost", "1e300"],
        "`--label-cost` must be at most 1e+30; got 1e+300",
    ),
    "split of a shift": (
        ["distance", "csv:a.csv", "csv:a.csv@x"],
        "`SECOND` must be one of train, calibration",
    ),
    "samples": (
        ["smoothness", "run", "--samples", "-3"],
        "`--samples` must be a whole number, at least 0; got -3",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(made: Path, arguments: list[str], message: str) -> None:
    refused(certus(*arguments, folder=made), message)
    assert not (made / "new").exists()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (torch.int32, "`--weights` must be floating-point tensors of real numbers; got torch.int32 in 1."),
        (torch.bool, "`--weights` must be floating-point tensors of real numbers; got torch.bool in 1."),
        (torch.complex64, "`--weights` must be floating-point tensors of real numbers; got torch.complex64"),
        (
            torch.float8_e4m3fn,
            "`--weights` must be floating-point tensors of real numbers; got torch.float8_e4m3fn",
        ),
    ],
    ids=str,
)
def test_weights_that_are_no_real_numbers(made: Path, kind: torch.dtype, message: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        model = build_model("mlp:3:elu", load("csv:a.csv"))
    save_file({name: value.to(kind) for name, value in model.state_dict().items()}, made / "w.safetensors")
    options = ["--data", "csv:a.csv", "--model", "mlp:3:elu", "--weights", "w.safetensors", "-o", "new"]
    refused(certus("import", *options, folder=made), message)


def test_settings_of_other_kinds() -> None:
    with pytest.raises(ArgumentError, match="`clip` is wrong: Expected `bool`, got `str`"):
        Settings(data="digits", model="mlp:3", gamma=1.0, clip="no")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`rho` is wrong: Expected `array`, got `float`"):
        CertifySettings(rho=0.1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`inequality` must be one of"):
        CertifySettings(rho=(0.1,), inequality="nonsense")
