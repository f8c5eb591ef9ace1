"""Where commands write: never over what is another's or no file, and refused before any work."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from certus.errors import ArgumentError
from certus.runs.directory import CERTIFICATE, RUN, owner_of, require_owned_folder
from tests.cli.test_cli import certus, refused


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    made = certus("train", "wine", "--epochs", "1", "--model", "mlp:4", "-o", "run", folder=folder)
    assert made.returncode == 0, made.stderr
    return folder / "run"


@pytest.fixture
def place(tmp_path: Path, trained: Path) -> Path:
    """A run, and folders of every other kind with a file or two: the least by which they are known."""
    shutil.copytree(trained, tmp_path / "run")
    files = {
        "other/run.json": json.dumps({"schema_version": 2}),
        "certificate/certificate.json": "{}",
        "noisy/smoothing.json": "{}",
        "unfinished/unfinished/level.safetensors": "",
        "mine/result.json": '{"my": "own"}',
        "mine/certificate.png": "a picture",
        "notes/notes.txt": "a user's",
        "elsewhere/certificate.json": json.dumps({"about": {"run": "a\0b", "digests": {"weights": ""}}}),
        "looped/certificate.json": json.dumps({"about": {"run": "loop", "digests": {"weights": ""}}}),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def contents(place: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


ATTACK = ["attack", "run", "--epsilon", "0.1"]
OWN = "must be a separate folder; got"
REFUSED = {
    "certify into a file": (
        ["certify", "run", "--rho", "1", "-o", "notes/notes.txt"],
        "`--output` must be a folder",
    ),
    "certify into its run": (["certify", "run", "--rho", "1", "-o", "run"], "run, which holds a run"),
    "certify into a run": (["certify", "run", "--rho", "1", "-o", "other"], "other, which holds a run"),
    "certify into a user's": (
        ["certify", "run", "--rho", "1", "-o", "mine"],
        "mine, whose certificate.png does not belong to a certificate",
    ),
    "train into a certificate": (
        ["train", "wine", "-o", "certificate"],
        "exists already: the folder is not empty",
    ),
    "train into a user's": (
        ["train", "wine", "-o", "notes"],
        "notes exists already: the folder is not empty",
    ),
    "train into a pipe": (
        ["train", "wine", "-o", "pipe"],
        "pipe exists already: it is not a folder; choose another",
    ),
    "import into a run": (
        ["import", "--weights", "x", "--data", "wine", "--model", "toy", "-o", "run"],
        "run exists already: it holds a complete run; choose another `--output`",
    ),
    "settings": ([*ATTACK, "-o", "run/run.json"], "run/run.json, which belongs to a run"),
    "result": ([*ATTACK, "-o", "run/result.json"], "run/result.json, which belongs to a run"),
    "table": ([*ATTACK, "-o", "certificate/samples.csv"], "samples.csv, which belongs to a certificate"),
    "compare": (["compare", "run", "other", "--epsilon", "1", "-o", "run/result.json"], "belongs to a run"),
    "noise": ([*ATTACK, "-o", "noisy/smoothing.json"], "smoothing.json, which belongs to a certificate"),
    "noisy picture": ([*ATTACK, "--plot", "noisy/smoothing.png"], "which belongs to a certificate"),
    "certify over a certificate": (
        ["certify", "run", "--rho", "1", "-o", "certificate"],
        "or one with a certificate of run; got certificate, which has a certificate of an unreadable file",
    ),
    "certify over another's": (
        ["certify", "run", "--rho", "1", "-o", "elsewhere"],
        "which has a certificate of an unreadable file",
    ),
    "certify over a loop": (
        ["certify", "run", "--rho", "1", "-o", "looped"],
        "which has a certificate of loop",
    ),
    "a loop of links": (["compare", "loop", "run", "--epsilon", "1"], "loop is not a run directory"),
    "results in a loop": ([*ATTACK, "-o", "loop", "--plot", "loop"], "Cannot write loop: Too many levels of"),
    "certify over noise": (
        ["certify", "run", "--rho", "1", "--smoothing", "1", "-o", "noisy"],
        "or one with a certificate of run; got noisy, which has a certificate of an unreadable file",
    ),
    "plot": ([*ATTACK, "--plot", "certificate/certificate.png"], "`--plot` must be a separate file"),
    "device": (
        [*ATTACK, "-o", "/dev/null"],
        "Cannot write /dev/null: it is a device",
    ),
    "link to a device": ([*ATTACK, "-o", "null"], "Cannot write null: it is a device"),
    "pipe": ([*ATTACK, "-o", "pipe"], "Cannot write pipe: it is a pipe"),
    "folder": ([*ATTACK, "-o", "notes"], "Cannot write notes: it is a folder"),
    "below a file": ([*ATTACK, "-o", "notes/notes.txt/x.json"], "`--output` must be a"),
    "no folder to lie in": (
        [*ATTACK, "-o", "/proc/x.json"],
        "`--output` must lie in a folder that can be written to",
    ),
    "plot into a device": (
        [*ATTACK, "--plot", "null"],
        "`--plot` must be a file that can be written: Cannot write null",
    ),
    "unknown format": ([*ATTACK, "--plot", "x.xyz"], "`--plot` must name a picture that can be drawn"),
    "no format": ([*ATTACK, "--plot", "x"], "its name has no ending such as .png"),
    "one file for both": (
        [*ATTACK, "-o", "x.png", "--plot", "./x.png"],
        "must be another file than",
    ),
    "predict over its rows": (
        ["predict", "run", "csv:mine/../notes/notes.txt", "-o", "notes/notes.txt"],
        "`--output` must be a file other than DATA, which it would replace; got notes/notes.txt",
    ),
    "predict in both ways": (
        ["predict", "run", "x.csv", "--json", "-o", "x.json"],
        "`--output` must be left out with --json, which prints",
    ),
    "predict over a run": (["predict", "run", "x.csv", "-o", "other/run.json"], "which belongs to a run"),
    "predict into a pipe": (
        ["predict", "run", "x.csv", "-o", "pipe"],
        "`--output` must be a file that can be written: Cannot write",
    ),
    "export over a run": (["export", "run", "-o", "run/model.safetensors"], "which belongs to a run"),
    "export into a device": (["export", "run", "-o", "null"], "Cannot write null: it is a device"),
    "features over a certificate": (
        ["sensitivity", "run", "--plot", "certificate/certificate.png"],
        "which belongs to a certificate",
    ),
    "report over a certificate": (
        ["report", "run", "-o", "certificate/samples.csv"],
        "belongs to a certificate",
    ),
    "report into a pipe": (["report", "run", "-o", "pipe"], "Cannot write pipe: it is a pipe"),
    "figures into a run": (
        ["report", "run", "--figures", "other"],
        f"`--figures` {OWN} other, which holds a",
    ),
    "figures into a certificate": (["report", "run", "--figures", "noisy"], "which holds a certificate"),
    "figures into levels": (["report", "run", "--figures", "unfinished"], "which holds a certificate"),
    "figures into a file": (
        ["report", "run", "--figures", "notes/notes.txt"],
        "`--figures` must be a folder",
    ),
    "figures as the page": (
        ["report", "run", "-o", "x.html", "--figures", "./x.html"],
        "`--figures` must be a path other than --output",
    ),
    "smoothness": (
        ["smoothness", "run", "--plot", "x.xyz"],
        "`--plot` must name a picture that can be drawn",
    ),
    "bound over a run": (["smoothness", "run", "--plot", "run/result.json"], "which belongs to a run"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_before_the_work(arguments: list[str], message: str, place: Path) -> None:
    """And nothing is changed by it."""
    before = contents(place)
    refused(certus(*arguments, folder=place), message)
    assert contents(place) == before


def test_a_certificate_whose_last_files_are_not_in_place(place: Path) -> None:
    """Killed between two of them: it is a certificate still, and the next one completes it."""
    left = place / "left"
    (left / ".complete").mkdir(parents=True)
    (left / "certificate.png").write_bytes(b"")
    shutil.copy(place / "certificate" / "certificate.json", left / ".complete")
    assert owner_of(left) is CERTIFICATE
    require_owned_folder(CERTIFICATE, "--output", left)
    with pytest.raises(ArgumentError, match="which holds a certificate"):
        require_owned_folder(RUN, "--output", left)


NEW = ["train", "wine", "--epochs", "1", "--model", "mlp:4", "--method", "erm"]


def test_a_folder_that_does_not_exist_and_back(tmp_path: Path) -> None:
    """``zz/../y`` is ``y``, whether ``zz`` exists or not; and a run that is in ``y`` already stays."""
    done = certus(*NEW, "-o", "zz/../y", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "y/result.json").exists()
    before = {path.name: path.read_bytes() for path in (tmp_path / "y").iterdir()}
    refused_again = certus(*NEW, "--seed", "7", "-o", "zz/../y", folder=tmp_path)
    assert refused_again.returncode == 2
    assert "exists already" in refused_again.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "y").iterdir()} == before
    weights = ["--weights", "y/model.safetensors", "--data", "wine", "--model", "mlp:4"]
    done = certus("import", *weights, "-o", "zz/../x", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert certus("import", *weights, "-o", "zz/../y", folder=tmp_path).returncode == 2
    assert {path.name for path in tmp_path.iterdir()} == {"x", "y"}


def test_names_of_runs_that_are_not_utf_8(tmp_path: Path, trained: Path) -> None:
    name = os.fsdecode(b"r\xff")
    done = certus(*NEW, "-o", name, folder=tmp_path)
    refused(done, "UTF-8")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(trained, tmp_path / name)
    for command in (["attack", name, "--epsilon", "0.1"], ["certify", name, "--rho", "0.1"]):
        refused(certus(*command, folder=tmp_path), "UTF-8")
    weights = ["--weights", str(trained / "model.safetensors"), "--data", "wine", "--model", "mlp:4"]
    refused(certus("import", *weights, "-o", name + "2", folder=tmp_path), "UTF-8")
