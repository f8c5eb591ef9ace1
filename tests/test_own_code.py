"""A model of the user's own: what runs is the source that was hashed, and nothing that lies in its way."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from certus.datasets import digits
from certus.errors import ArgumentError
from certus.models.networks import build_from, build_model
from certus.models.own_code import OwnCode
from tests.cli.test_cli import certus, refused

NET = """from torch import nn
import helper
def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, helper.WIDTH), nn.ELU(), nn.Linear(helper.WIDTH, 10))
"""
TRAP = "import pathlib\npathlib.Path({mark!r}).touch()\n"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def plant(file: Path, mark: Path) -> None:
    """A .pyc of other code that Python takes for the file's own: same size, same time, right place."""
    honest = file.read_bytes()
    trap = TRAP.format(mark=str(mark)).encode() + honest
    padded = honest + b"#" * (len(trap) - len(honest) - 1) + b"\n"
    times = (10**9, 10**9)
    file.write_bytes(trap)
    os.utime(file, times)
    py_compile.compile(str(file), doraise=True)
    file.write_bytes(padded)
    os.utime(file, times)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "helper.py").write_text("WIDTH = 3\n")
    return tmp_path


def test_modules_beside_the_file_are_found_and_hashed(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "__init__.py").write_text("from parts.inner import WIDTH\n")
    (folder / "parts" / "inner.py").write_text("from helper import WIDTH\n")
    (folder / "net.py").write_text(NET.replace("import helper", "import helper, parts"))
    before = dict(sys.modules)
    built = build_from(f"{folder}/net.py:make", digits())
    names = ("net.py", "helper.py", "parts/__init__.py", "parts/inner.py")
    assert built.sources is not None
    assert built.sources.files == {name: sha256(folder / name) for name in names}
    assert built.sources.uncovered == ()
    assert not {"helper", "parts", "parts.inner"} & (sys.modules.keys() - before.keys())
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize("name", ["net", "helper"])
def test_a_planted_pyc_does_not_run(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = folder / "sprung"
    plant(folder / f"{name}.py", mark)
    monkeypatch.syspath_prepend(str(folder))  # as `python -m certus` has the folder it is called in
    built = build_from(f"{folder}/net.py:make", digits())
    assert built.sources is not None
    assert built.sources.files[f"{name}.py"] == sha256(folder / f"{name}.py")
    assert not mark.exists()
    shutil.copy(folder / "helper.py", folder / "unrelated.py")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if k not in ("net", "helper")})
        __import__(name)
    assert mark.exists()  # the trap was a real one


def test_two_files_may_have_helpers_of_one_name(tmp_path: Path) -> None:
    widths = []
    for count in (3, 5):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "net.py").write_text(NET)
        (folder / "helper.py").write_text(f"WIDTH = {count}\n")
        network = build_model(f"{folder}/net.py:make", digits())
        widths.append(len(network.get_parameter("1.weight")))
    assert widths == [3, 5]


def test_values_that_are_not_sources_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "old.py").write_text("WIDTH = 3\n")
    py_compile.compile(str(folder / "old.py"), cfile=str(folder / "old.pyc"), doraise=True)
    (folder / "old.py").unlink()
    (folder / "net.py").write_text(NET.replace("import helper", "import old as helper"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "old", raising=False)
    built = build_from(f"{folder}/net.py:make", digits())
    assert built.sources is not None
    assert built.sources.uncovered == ("old.pyc",)


def test_only_known_sources_run(folder: Path) -> None:
    spec = f"{folder}/net.py:make"
    known = {name: sha256(folder / name) for name in ("net.py", "helper.py")}
    build_from(spec, digits(), expected=known)
    (folder / "helper.py").write_text(TRAP.format(mark=str(folder / "sprung")) + "WIDTH = 3\n")
    with pytest.raises(ArgumentError, match=r"import the same modules beside it; got .*helper.py, which has"):
        build_from(spec, digits(), expected=known)
    with pytest.raises(ArgumentError, match=r"got .*helper.py, which has another sha256 or was not imported"):
        build_from(spec, digits(), expected={"net.py": known["net.py"]})
    with pytest.raises(ArgumentError, match=r"must be the file that the run was started with.*got .*net.py"):
        OwnCode(spec, {"net.py": "0" * 64})
    assert not (folder / "sprung").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise SystemExit(0)", "failed with SystemExit: 0"),
        ("def make(): exit(3)", "failed with SystemExit: 3"),
        ("def make(:", "failed with SyntaxError"),
        ("\0", "failed with (SyntaxError|ValueError)"),
        ("def make(): return make()", "failed with RecursionError"),
        ("import nothing_of_this_name", "failed with ModuleNotFoundError"),
        ("make = 3", "must name a function of"),
        ("def make(): return 3", "must be a torch.nn.Module that make"),
    ],
)
def test_failures_are_one_error(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "net.py").write_text(source)
    with pytest.raises(ArgumentError, match=message):
        build_model(f"{tmp_path}/net.py:make", digits())


def test_a_file_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("pipe.py", "folder.py", "none.py", "a\0.py"):
        with pytest.raises(ArgumentError, match="`model` must name a file that can be read"):
            build_model(f"{tmp_path}/{name}:make", digits())


def test_a_run_is_bound_to_all_of_its_code(folder: Path) -> None:
    options = ["--epochs", "1", "--method", "erm", "--model", "net.py:make", "-o", "run"]
    done = certus("train", "digits", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "records the sha256 of net.py, helper.py, and not of installed packages." in done.stderr
    about = json.loads((folder / "run/run.json").read_text())
    assert about["model_sha256"] == sha256(folder / "net.py")
    assert about["model_imports"] == {"helper.py": sha256(folder / "helper.py")}
    attack = ["attack", "run", "--epsilon", "0.01", "--samples", "5", "--model", "net.py:make"]
    assert certus(*attack, folder=folder).returncode == 0
    (folder / "helper.py").write_text("WIDTH = 3  # changed\n")
    refused(certus(*attack, folder=folder), "import the same modules beside it; got")


@pytest.mark.parametrize(
    "spec", ["mlp:1000000,1000000", "mlp:" + ",".join(["10000"] * 9), "certified-mlp:1000000,1000000"]
)
def test_networks_that_no_memory_holds(tmp_path: Path, spec: str) -> None:
    done = certus("train", "digits", "--method", "erm", "--model", spec, "-o", "run", folder=tmp_path)
    refused(done, "`--model` must have at most 100000000 weights")
    assert not (tmp_path / "run").exists()
    done = certus("train", "digits", "--method", "erm", "--model", "certified-cnn:1000000", folder=tmp_path)
    refused(done, "`--model` must have at most 100000000 weights")
