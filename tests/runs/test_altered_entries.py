"""Every entry of every sealed JSON file, set to null, to another kind or out of range, and sealed again.

A forger can write a new digest. What no certus could have written must still be refused in one clear line,
whoever reads it: no raw exception, and no result from an entry of another kind.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import certus as library
from certus.certificates import Certificate
from certus.errors import CertusError
from certus.smoothing import SmoothedCertificate
from certus.storage.write import add_checksum
from tests.certificates.small_run import certify_small, make_run
from tests.cli.test_cli import certus

Keys = tuple[str | int, ...]
OTHER_KINDS: tuple[Any, ...] = (None, True, "x", [], {}, [[1]], ["x"], [None])
OUT_OF_RANGE: tuple[Any, ...] = (-1, -1e300, 1e300)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resealed")
    make_run(folder, 1.0)
    certify_small(folder, 1.0, "--gamma-rounds", "0", "--epsilon", "0.1")
    noise = ["certify", "run", "--rho", "0.002", "--smoothing", "0.25", "--draws", "20"]
    done = certus(*noise, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def keys_of(content: Any, before: Keys = ()) -> Iterator[Keys]:
    """Where every entry is; of a list, the first."""
    if before:
        yield before
    if isinstance(content, dict):
        for name in content:
            yield from keys_of(content[name], (*before, name))
    elif isinstance(content, list) and content:
        yield from keys_of(content[0], (*before, 0))


def with_entry(content: Any, keys: Keys, value: Any) -> Any:
    changed = copy.deepcopy(content)
    inside = changed
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    return changed


def entry(content: Any, keys: Keys) -> Any:
    for key in keys:
        content = content[key]
    return content


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "certificate": ("run/certificate/certificate.json", lambda place: Certificate.load(place / "forged")),
    "smoothing": ("run/certificate/smoothing.json", lambda place: SmoothedCertificate.load(place / "forged")),
    "run": ("run/run.json", lambda place: library.load_run(place / "other")),
    "result": ("run/result.json", lambda place: library.load_run(place / "other")),
}
FREE = {
    # Of no number that the certificate answers with; ``verify`` asks: see below, and test_check.py.
    "certificate": ("about", "check"),
    "smoothing": ("about",),
    "run": (),
    "result": (),
}
MAY_BE: dict[str, dict[str, tuple[Any, ...]]] = {
    # Entries that may have one of the values tried: what is proven then is only weaker, or not affected.
    "certificate": {
        "clip": (None,), "error_grid": ([],), "clean_loss": (1e300, -1, -1e300), "mean": (1e300,),
        "loss": (-1, -1e300),
    },
    "smoothing": {
        "abstain": (None,), "table": (None,), "moves": ([],), "start": (-1, -1e300), "loss": (-1, -1e300),
    },
    "run": {
        "certus_version": ("x",), "torch_version": ("x",), "target": (None, "x"), "drop": ("x",),
        "categorical": ("x",), "separator": ("x",), "split_by": (None, "x"), "split": (None,),
        "gamma": (None,), "rho": (None,), "price": (None,), "norm": (None,), "epsilon": (None,),
        "step_size": (None,), "cost": (None,), "steps": (None,), "weight_decay": (None,), "schedule": (None,),
        "tolerance": (1e300,), "clip": (True,), "standardize": (True,), "certified": (True,),
        "model_imports": (None, {}), "model_uncovered": (None, [], ["x"]), "model_sha256": (None,),
        "split_sha256": (None,), "temperature": (True, 1e300), "folder": ("x",),
    },
    "result": {"robustness": (None,), "loss": (-1, 1e300, -1e300), "names": ("x",), "recall": (None,),
               "rarest": (None,)},
}  # fmt: skip


def forgeries(name: str, content: Any) -> Iterator[tuple[Keys, Any]]:
    for keys in keys_of({key: value for key, value in content.items() if key != "sha256"}):
        if keys[0] in FREE[name]:
            continue
        for value in (*OTHER_KINDS, *OUT_OF_RANGE):
            own = entry(content, keys)
            if own != value or type(own) is not type(value):
                yield keys, value


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("name", FILES)
def test_no_entry_of_another_kind_is_believed(place: Path, name: str) -> None:
    path, read = FILES[name]
    content = json.loads((place / path).read_text())
    if name in ("run", "result"):
        shutil.copytree(place / "run", place / "other", dirs_exist_ok=True)
    target = place / "forged" if name in ("certificate", "smoothing") else place / "other" / Path(path).name
    believed, wordless = [], []
    for keys, value in forgeries(name, content):
        target.write_text(json.dumps(add_checksum(with_entry(content, keys, value))))
        try:
            read(place)
        except CertusError as reason:
            wordless += [(keys, value)] if len(str(reason)) < 20 else []
            continue
        named = {str(key) for key in keys}
        if not any(value in legal for key, legal in MAY_BE[name].items() if key in named):
            believed.append((keys, value))
    shutil.copy(place / path, target)
    read(place)
    assert believed == []
    assert wordless == []


@pytest.mark.parametrize("price", [0, 0.0, -1.0, None, True])
def test_no_unit_price_that_nothing_has(place: Path, price: Any) -> None:
    """Distances are √(ρ / price)."""
    content = json.loads((place / "run/certificate/certificate.json").read_text())
    (place / "forged").write_text(json.dumps(add_checksum(content | {"unit_cost": price})))
    with pytest.raises(CertusError, match="unit_cost"):
        Certificate.load(place / "forged")
    done = certus("verify", "forged", folder=place)
    assert done.returncode == 1
    assert "unit_cost" in done.stderr


@pytest.mark.parametrize(
    "name", ["error_margin", "error_margin_low", "attained_error_cost", "inequality", "clean_loss"]
)
def test_a_population_with_null(place: Path, name: str) -> None:
    content = json.loads((place / "run/certificate/certificate.json").read_text())
    content["population"][name] = None
    (place / "forged").write_text(json.dumps(add_checksum(content)))
    done = certus("verify", "forged", folder=place)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "AssertionError" not in done.stderr
    assert name in done.stderr or name == "clean_loss"


@pytest.mark.parametrize("file", ["certificate.json", "smoothing.json"])
@pytest.mark.parametrize("value", [None, "x", [], {}], ids=repr)
def test_verify_refuses_what_a_certificate_says_of_itself(place: Path, file: str, value: Any) -> None:
    """Whole parts of ``about``, and each setting: an exit code that means something, and no traceback."""
    content = json.loads((place / "run/certificate" / file).read_text())
    parts: list[Keys] = [("about",), *(("about", name) for name in ("run", "settings", "digests"))]
    parts += [("about", "settings", name) for name in content["about"]["settings"]]
    parts += [("about", "digests", name) for name in content["about"]["digests"]]
    for keys in parts:
        if entry(content, keys) == value:
            continue
        (place / "forged.json").write_text(json.dumps(add_checksum(with_entry(content, keys, value))))
        redraw = ("--redraw",) if file == "smoothing.json" else ()
        done = certus("verify", "forged.json", *redraw, folder=place)
        assert "Traceback" not in done.stderr
        if done.returncode == 0:  # a setting that may be left out, and that no number rests on
            assert keys[1] == "settings", keys
            assert value in (None, []), keys
            continue
        assert done.returncode in (1, 2), (keys, done.stderr)
        assert done.stderr.splitlines()[-1].startswith("certus: error: ")
