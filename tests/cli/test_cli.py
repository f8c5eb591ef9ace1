"""The command line as a user meets it: results on stdout, one-line errors on stderr, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file

from certus.cli.app import main
from certus.datasets import digits
from certus.models import build_model
from certus.runs import RunDirectory, RunLock, load_model
from certus.storage.write import add_checksum
from tests.pictures import bars_of, pixels_of

QUICK = ["--epochs", "1", "--model", "mlp:8:elu"]
SAMPLED = "sampled (estimated)"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def certus(*arguments: str, folder: Path) -> Done:
    """Run the command line in this process, in a folder of the user's."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["certus", *arguments])
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def refused(done: Done, message: str) -> None:
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("certus: error: ")
    assert done.stdout == ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    done = certus("train", "digits", *QUICK, "-o", "runs/robust", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Neither --gamma nor --rho given: rho = " in done.stderr
    assert "a tenth of" in " ".join(done.stderr.split())
    assert "Robustness reached on the training data (estimated)" in done.stdout
    return folder


def test_a_run_holds_what_it_should(trained: Path) -> None:
    run = trained / "runs/robust"
    names = {path.name for path in run.iterdir()}
    assert names >= {
        *("run.json", "split.safetensors", "checkpoint.safetensors", "metrics.jsonl"),
        *("model.safetensors", "result.json"),
    }
    about = json.loads((run / "run.json").read_text())
    assert about["schema_version"] == 5
    assert about["data_sha256"] == digits().sha256
    assert about["cost"] == {"type": "SquaredL2"}
    result = json.loads((run / "result.json").read_text())
    rho = about["settings"]["rho"]
    assert abs(result["robustness"]["rho_hat"] - rho) <= 0.05 * rho
    assert result["robustness"]["distance"] == pytest.approx(result["robustness"]["rho_hat"] ** 0.5)


def test_the_trained_model_is_loaded_back(trained: Path) -> None:
    run = RunDirectory.open(trained / "runs/robust")
    model = load_model(run)
    assert not model.training
    right = (model(digits().test.inputs).argmax(1) == digits().test.targets).double().mean()
    assert run.result is not None
    assert float(right) == pytest.approx(run.result["test"]["accuracy"])
    rows = run.rows
    assert torch.equal(rows["test"], digits().rows["test"])


def test_json_and_the_table_of_runs(trained: Path, tmp_path: Path) -> None:
    done = certus("train", "digits", *QUICK, "--method", "erm", "--json", folder=trained)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["run"] == "runs/digits-erm"
    assert printed["result"]["robustness"] is None
    assert len(printed["history"]) == 1
    rows = json.loads(certus("runs", "--json", folder=trained).stdout)
    assert {row["run"]: row["state"] for row in rows} == {
        "runs/digits-erm": "complete",
        "runs/robust": "complete",
    }
    table = certus("runs", folder=trained).stdout
    assert "runs/robust" in table
    assert "1/1" in table
    assert "There is no folder elsewhere." in certus("runs", "elsewhere", folder=trained).stdout
    assert f"No runs in {tmp_path}." in certus("runs", str(tmp_path), folder=trained).stdout


def test_the_bound_of_a_run(trained: Path, drawn: list[Figure]) -> None:
    done = certus("smoothness", "runs/robust", "--samples", "20", folder=trained)
    assert done.returncode == 0, done.stderr
    assert "sum rule" in done.stdout
    assert "sampled on test data (estimated)" in done.stdout
    assert "Proven for the real-valued network" in done.stdout
    assert pixels_of(trained / "runs/robust/smoothness.png")["#0072B2"] > 10
    done = certus("smoothness", "runs/robust", "--json", "--plot", "b.svg", folder=trained)
    printed = json.loads(done.stdout)
    assert printed["evidence"] == "proven"
    assert printed["sampled"]["evidence"] == "estimated"
    assert printed["sampled"]["value"] <= printed["curvature"] == min(printed["bounds"].values())
    rules, layers = drawn[-1].axes
    places = np.asarray(rules.collections[0].get_offsets(), dtype=np.float64)
    assert places[:, 0].tolist() == pytest.approx([*printed["bounds"].values(), printed["sampled"]["value"]])
    assert [tick.get_text() for tick in rules.get_yticklabels()][-1] == SAMPLED
    names = [f"{one['path']} ({one['kind']})" if one["path"] else "the loss" for one in printed["layers"]]
    added = dict(zip(names, (one["curvature"] for one in printed["layers"]), strict=True))
    assert bars_of(layers) == pytest.approx({name: value for name, value in added.items() if value})
    assert "<!-- largest curvature of the loss -->" in (trained / "b.svg").read_text()
    refused(certus("smoothness", "runs/none", folder=trained), "runs/none is not a run directory")


def test_a_complete_run_is_shown_again(trained: Path) -> None:
    done = certus("resume", "runs/robust", "--json", folder=trained)
    assert done.returncode == 0
    assert "complete already" in done.stderr
    assert json.loads(done.stdout)["run"] == "runs/robust"


def test_weights_from_elsewhere(trained: Path) -> None:
    model = build_model("mlp:8:elu", digits(), seed=3)
    save_file(model.state_dict(), trained / "mine.safetensors")
    options = ["--model", "mlp:8:elu", "--data", "digits"]
    done = certus(
        "import", *options, "--weights", "mine.safetensors", "-o", "runs/mine", "--json", folder=trained
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["result"]["test"]["accuracy"]
    model.eval()
    expected = (model(digits().test.inputs).argmax(1) == digits().test.targets).double().mean()
    assert found == pytest.approx(float(expected))
    for place, prefix in enumerate(("module.", "_orig_mod.", "_orig_mod.module.")):
        state = {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
        save_file(state, trained / "wrapped.safetensors")
        wrapped = ["--weights", "wrapped.safetensors", "-o", f"runs/wrapped{place}", "--json"]
        done = certus("import", *options, *wrapped, folder=trained)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"]["test"]["accuracy"] == found
    other = ["--model", "mlp:9:elu", "--data", "digits", "--weights", "mine.safetensors", "-o", "runs/no"]
    refused(certus("import", *other, folder=trained), "`--weights` must fit the model; size mismatch")
    torch.save(model.state_dict(), trained / "mine.pt")
    pickled = ["import", *options, "--weights", "mine.pt", "-o", "runs/no"]
    refused(certus(*pickled, folder=trained), "is a pickled file")
    assert not (trained / "runs/no").exists()


def test_ones_own_model_file(trained: Path) -> None:
    """It is executed when named, never when a run is only opened."""
    (trained / "net.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    options = [
        "train",
        "digits",
        "--epochs",
        "1",
        "--method",
        "erm",
        "--model",
        "net.py:make",
        "-o",
        "runs/own",
    ]
    assert certus(*options, folder=trained).returncode == 0
    (trained / "runs/own/result.json").unlink()
    refused(certus("resume", "runs/own", folder=trained), "`--model` must be given again")
    assert certus("resume", "runs/own", "--model", "net.py:make", folder=trained).returncode == 0
    (trained / "runs/own/result.json").unlink()
    with (trained / "net.py").open("a") as file:
        file.write("# changed\n")
    changed = certus("resume", "runs/own", "--model", "net.py:make", folder=trained)
    refused(changed, "be the file that the run was started with")
    refused(certus(*options[:-4], "--model", "net.py:nothing", folder=trained), "name a function of net.py")
    (trained / "broken.py").write_text("def make():\n    raise KeyError('x')\n")
    refused(certus(*options[:-4], "--model", "broken.py:make", folder=trained), "failed with KeyError")


def test_imported_runs_are_marked_and_never_trained_over(trained: Path) -> None:
    model = build_model("mlp:8:elu", digits(), seed=4)
    save_file(model.state_dict(), trained / "good.safetensors")
    broken = {name: weight * torch.nan for name, weight in model.state_dict().items()}
    save_file(broken, trained / "nan.safetensors")
    options = ["import", "--model", "mlp:8:elu", "--data", "digits"]
    nan = certus(*options, "--weights", "nan.safetensors", "-o", "runs/nan", folder=trained)
    refused(nan, "`--weights` must be finite")
    assert not (trained / "runs/nan").exists()
    assert (
        certus(*options, "--weights", "good.safetensors", "-o", "runs/good", folder=trained).returncode == 0
    )
    (trained / "runs/good/result.json").unlink()
    refused(certus("resume", "runs/good", folder=trained), "was imported, not trained")
    rows = json.loads(certus("runs", "--json", folder=trained).stdout)
    assert [row["epochs"] for row in rows if row["run"] == "runs/good"] == ["imported"]


def test_paths_are_printed_as_they_are(trained: Path) -> None:
    name = "runs/x[bold]y[/foo] " + "long" * 30
    done = certus("train", "digits", *QUICK, "--method", "erm", "-o", name, folder=trained)
    assert done.returncode == 0, done.stderr
    assert f"Run directory: {name}" in done.stdout


def test_models_that_fail(trained: Path) -> None:
    (trained / "bad.py").write_text(
        "from torch import nn\n"
        "class Pair(nn.Module):\n    def forward(self, x):\n        return x, x\n"
        "class Odd(nn.Module):\n    def forward(self, x):\n        raise ValueError('odd')\n"
    )
    for name, message in (
        ("Pair", "`--model` must return a tensor"),
        ("Odd", "it fails with ValueError: odd"),
    ):
        refused(certus("train", "digits", "--model", f"bad.py:{name}", folder=trained), message)


REFUSED = {
    "data": (["train", "nothing"], "`DATA` must be one of digits, rings"),
    "likely": (["train", "clean.csv"], "got 'clean.csv'. Did you mean csv:clean.csv?"),
    "method": (
        ["train", "digits", "--method", "magic"],
        "`--method` must be one of wrm, erm, fgsm, bim, pgd",
    ),
    "epochs": (["train", "digits", "--epochs", "0"], "`--epochs` must be at least 1; got 0."),
    "gamma": (["train", "digits", "--gamma", "-1"], "`--gamma` must be positive and finite; got -1.0."),
    "both": (
        ["train", "digits", "--gamma", "1", "--rho", "1"],
        "Give either `--gamma` or `--rho` for wrm; got both, 1.0 and 1.0.",
    ),
    "erm": (["train", "digits", "--method", "erm", "--rho", "1"], "`--rho` must be left out for erm"),
    "number": (["train", "digits", "--epochs", "many"], "`--epochs` must be a whole number; got 'many'"),
    "option": (["train", "digits", "--nonsense"], "--nonsense"),
    "command": (["dance"], "dance"),
    "model": (["train", "digits", "--model", "resnet"], "`--model` must be toy, toy-relu, mnist-cnn, mlp:"),
    "model file": (
        ["train", "digits", "--model", "no.py:make"],
        "`--model` must name a file that can be read",
    ),
    "widths": (
        ["train", "digits", "--model", "mlp:a"],
        "`--model` must be like mlp:128,64:elu; got 'mlp:a'.",
    ),
    "activation": (["train", "digits", "--model", "mlp:8:swoosh"], "`activation` must be one of elu, relu"),
    "shape": (["train", "digits", "--model", "toy"], "`--model` must have 2 inputs and 2 classes for toy"),
    "smoothing": (
        ["train", "diabetes", "--label-smoothing", "0.1"],
        "`--label-smoothing` must be left out for diabetes",
    ),
    "junk": (["train", "digits", "--model", "mlp:8:elu:junk"], "`--model` must be like mlp:128,64:elu"),
    "decay": (
        ["train", "digits", "--weight-decay", "inf"],
        "`--weight-decay` must be finite and not negative",
    ),
    "huge": (
        ["train", "digits", "--gamma", "1e300"],
        "`--gamma` must lie between 1e-30 and 1e30; got 1e+300.",
    ),
    "long name": (["train", "digits", "-o", "n" * 300], "File name too long"),
    "exists": (
        ["train", "digits", "-o", "runs/robust"],
        "it holds a complete run; choose another `--output`",
    ),
    "no run": (["resume", "runs/none"], "runs/none is not a run directory"),
    "fetch": (["data", "get", "nothing"], "got 'nothing'"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(arguments: list[str], message: str, trained: Path) -> None:
    refused(certus(*arguments, folder=trained), message)


def test_damaged_runs(trained: Path) -> None:
    """Wrong schema, corrupt files, other data, a second process: one line each, nothing lost."""
    made = certus("train", "digits", *QUICK, "--method", "erm", "-o", "runs/hurt", folder=trained)
    assert made.returncode == 0
    run = trained / "runs/hurt"
    (run / "result.json").unlink()
    about = (run / "run.json").read_text()
    with RunLock(run):
        refused(certus("resume", "runs/hurt", folder=trained), "is in use by another process")
    (run / "run.json").write_text(about.replace('"schema_version": 5', '"schema_version": 7'))
    refused(certus("resume", "runs/hurt", folder=trained), "has schema version 7")
    states = [row["state"] for row in json.loads(certus("runs", "--json", folder=trained).stdout)]
    assert sum("unreadable" in state for state in states) == 1
    for content, message in (("{", "run.json is corrupt"), ("[]", "does not describe a run")):
        (run / "run.json").write_text(content)
        refused(certus("resume", "runs/hurt", folder=trained), message)
    assert certus("runs", folder=trained).returncode == 0
    for changes, message in (
        ({"data_sha256": "0" * 64}, "was started with other data"),
        ({"criterion": {"type": "CrossEntropy", "x": 1}}, "is corrupt"),
    ):
        (run / "run.json").write_text(json.dumps(add_checksum(json.loads(about) | changes)))
        refused(certus("resume", "runs/hurt", folder=trained), message)
    (run / "run.json").write_text(about)
    split = (run / "split.safetensors").read_bytes()
    (run / "split.safetensors").write_bytes(b"junk")
    refused(certus("resume", "runs/hurt", folder=trained), "split.safetensors is corrupt")
    (run / "split.safetensors").write_bytes(split)
    checkpoint = (run / "checkpoint.safetensors").read_bytes()
    (run / "checkpoint.safetensors").write_bytes(checkpoint[:-1] + b"!")
    refused(certus("resume", "runs/hurt", folder=trained), "checkpoint.safetensors is corrupt")
    (run / "checkpoint.safetensors").write_bytes(checkpoint)
    assert certus("resume", "runs/hurt", folder=trained).returncode == 0


def test_help_teaches(tmp_path: Path) -> None:
    for command in (
        ["train"],
        ["resume"],
        ["import"],
        ["attack"],
        ["compare"],
        ["runs"],
        ["smoothness"],
        ["data", "get"],
        ["data", "list"],
    ):
        done = certus(*command, "--help", folder=tmp_path)
        assert done.returncode == 0
        assert f"certus {' '.join(command)}" in done.stdout
    bare = certus(folder=tmp_path)
    assert bare.returncode == 2
    assert "train" in bare.stderr
    listed = json.loads(certus("data", "list", "--json", folder=tmp_path).stdout)
    assert {"digits", "mnist", "employment"} <= {entry["name"] for entry in listed}


def test_the_installed_command() -> None:
    """As a process of its own: the entry point exists, and a refusal has exit code 2 and no traceback."""
    command = [sys.executable, "-m", "certus", "train", "digits", "--epochs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused(Done(done.returncode, done.stdout, done.stderr), "`--epochs` must be at least 1; got 0.")
