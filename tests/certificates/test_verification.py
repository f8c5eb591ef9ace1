"""A forged or damaged certificate is found out, wherever it was changed, whatever the size of features."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certus.certificates.cache import differences, table_differences
from certus.certificates.certificate import Certificate
from certus.certificates.files import _certificate, as_json
from certus.errors import CertusError, ContradictionError
from certus.runs import RunDirectory
from certus.runs.certification import certify_run
from certus.runs.loaded_run import LoadedRun, open_run
from certus.runs.verification import CIRCUMSTANCES, Statement
from certus.storage.files import CorruptFileError, RunError
from certus.storage.write import add_checksum, without_checksum
from tests.certificates.small_run import certify_small, make_run

Path_ = tuple[str | int, ...]
SCALES = {"units": 1.0, "millionths": 1e-6}


class Small:
    """A certificate on disk, and the same computed again."""

    def __init__(self, place: Path, scale: float) -> None:
        make_run(place, scale)
        certify_small(place, scale)
        self.file = place / "run/certificate/certificate.json"
        self.content: dict[str, Any] = json.loads(self.file.read_text())
        del self.content["check"]  # for the kernel: tests/kernel/test_check.py
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            self.trained: LoadedRun = open_run(RunDirectory.open(Path("run")))
            self.again: Certificate = certify_run(self.trained, Statement.read(self.file).settings)
        self.place = place

    def found(self, content: dict[str, Any], again: Certificate | None = None) -> list[str]:
        """What verification finds in a forged file, whose digest the forger has computed again."""
        forged = self.file.with_name("forged.json")
        forged.write_text(json.dumps(add_checksum(content)))
        try:
            stated = Statement.read(forged)
            return stated.other_problem(self.trained) or stated.differences(again or self.again)
        except (RunError, ContradictionError) as reason:
            return [str(reason)]


@pytest.fixture(scope="module", params=list(SCALES.values()), ids=list(SCALES))
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    place = tmp_path_factory.mktemp("verified")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        yield Small(place, request.param)


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every number, word, truth value and None of a JSON document."""
    if isinstance(value, dict | list):
        for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(entry, (*path, name))
    else:
        yield path, value


def changed(content: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    new = copy.deepcopy(content)
    part: Any = new
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return new


def in_accord(content: dict[str, Any]) -> dict[str, Any]:
    """The same, with brackets that follow from the rest: a forger who knows how a file is read."""
    try:
        return without_checksum(as_json(_certificate(content))) | {"evidence": content["evidence"]}
    except (CertusError, ArithmeticError, TypeError, ValueError, RuntimeError):
        return content


def irrelevant(path: Path_) -> bool:
    """What no number rests on: circumstances; the settings are tried below."""
    return path[0] == "about" and path[1] in (*CIRCUMSTANCES, "settings")


def test_the_honest_file_is_verified(small: Small) -> None:
    assert small.found(without_checksum(small.content)) == []
    assert Statement.read(small.file).remarks(small.again) == []


def kinds(content: dict[str, Any]) -> list[list[tuple[Path_, Any]]]:
    """The leaves that verification may not pass over, those that differ by an index alone together."""
    found: dict[str, list[tuple[Path_, Any]]] = {}
    for path, value in leaves(content):
        if not irrelevant(path):
            found.setdefault(re.sub(r"\d+", "*", str(path)), []).append((path, value))
    return list(found.values())


def forgeries(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value, int(value)]
        case float() if value != 0:
            return [value * (1 + 1e-6), value * (1 - 1e-6)]
        case float():
            return [5e-324, -1e-300]
        case int():
            return [value + 1]
        case str():
            return [value + " "]
    return [1e300]


def check_forged(small: Small, leaf: tuple[Path_, Any]) -> None:
    """A millionth of a number, up and down, with all else in accord and a new digest."""
    (path, value), honest = leaf, without_checksum(small.content)
    for forged in forgeries(value):
        content = changed(honest, path, forged)
        accord = in_accord(content)  # which puts right what follows from the rest
        assert small.found(content if accord == honest else accord), path


def test_every_kind_of_leaf_is_found_when_forged(small: Small) -> None:
    """The last of each: of the samples, of the γ, of the ρ."""
    every = kinds(without_checksum(small.content))
    assert len(every) > 50
    for kind in every:
        check_forged(small, kind[-1])


@pytest.mark.soak
def test_every_leaf_is_found_when_forged(small: Small) -> None:
    for kind in kinds(without_checksum(small.content)):
        for leaf in kind:
            check_forged(small, leaf)


@pytest.mark.parametrize("small", [1.0], indirect=True)
def test_leaves_of_another_kind_are_found(small: Small) -> None:
    """None, a word, a truth value, what no float can hold, or missing."""
    honest = without_checksum(small.content)
    for path, value in (kind[0] for kind in kinds(honest)):
        for other in (None, "0.5", True, 10**400):
            if isinstance(other, bool) or isinstance(value, bool) or other != value:
                assert small.found(changed(honest, path, other)), (path, other)
        shorter = changed(honest, path, value)
        part: Any = shorter
        for name in path[:-1]:
            part = part[name]
        del part[path[-1]]
        assert small.found(shorter), path


@pytest.mark.parametrize("small", [1.0], indirect=True)
def test_settings_that_were_changed_are_found(small: Small) -> None:
    """The file is then compared with what those settings give."""
    honest = without_checksum(small.content)
    settings = honest["about"]["settings"]
    others: dict[str, Any] = {
        "rho": [settings["rho"][0] * 1.001, settings["rho"][1]],
        "confidence": 0.91,
        "clip": 2.0,
        "own_labels": True,
        "label_cost": settings["rho"][0],
        "inequality": "hoeffding",
        "seed": 1,
        "gammas": [honest["aggregates"][0]["gamma"], honest["aggregates"][1]["gamma"]],
        "local_radii": 0,
        "gamma_rounds": 0,
        "attack_steps": 0,
        "samples": 6,
        "split": "calibration",
    }
    for name, value in others.items():
        assert value != settings[name], name
        content = changed(honest, ("about", "settings", name), value)
        if name == "own_labels":  # the file says whose labels they are, and is not even read
            assert small.found(content) != []
            continue
        forged = small.file.with_name("forged.json")
        forged.write_text(json.dumps(add_checksum(content)))
        stated = Statement.read(forged)
        other = stated.other_problem(small.trained)
        if name in ("samples", "split"):
            assert other == ["digests.samples: the samples are not those that were certified"]
        else:
            assert other == []
            assert stated.differences(certify_run(small.trained, stated.settings)), name


def test_costs_are_compared_by_their_own_size(small: Small) -> None:
    """The defect: floors of 10⁻¹³ were compared to 10⁻⁹, so that any of them passed.

    The rates at the ρ asked for do not rest on the largest floor; those at larger ρ do.
    """
    honest, rho = without_checksum(small.content), 10 * small.content["rhos"][-1]
    floor, found = honest["proven_error_cost"], honest["attained_error_cost"]
    index = max(range(len(floor)), key=lambda place: floor[place])
    assert floor[index] < found[index]
    forged = in_accord(changed(honest, ("proven_error_cost", index), found[index]))
    assert forged["proven_error_cost"][index] == found[index]
    better, true = _certificate(forged).error_bound(rho), small.again.error_bound(rho)
    assert better is not None
    assert true is not None
    assert better < true
    assert f"proven_error_cost[{index}]: {found[index]}, now {floor[index]}" in small.found(forged)


def test_the_table_of_samples(small: Small) -> None:
    table = small.file.with_name("samples.csv")
    text = table.read_text()
    for pattern, value in ((r",(local|concave|radial),", ",lipschitz,"), (r"\n([^,]+),", "\n0.5,")):
        table.write_text(re.sub(pattern, value, text, count=1))
        found = Statement.read(small.file).differences(small.again)
        assert "samples.csv: it is not the file that was written with the certificate" in found
        assert any(line.startswith("samples.csv[1]") for line in found)
    # A forger who writes the digest of his own table.
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    content = changed(without_checksum(small.content), ("about", "digests", "table"), digest)
    assert [line for line in small.found(content) if line.startswith("samples.csv[1]")]
    table.write_bytes(b"\xff")
    stated = Statement.read(small.file)
    table.unlink()  # after it was read, as a certification that ends meanwhile might
    assert stated.differences(small.again)
    table.write_bytes(b"rho,gamma\r0.1,\r2")
    stated = Statement.read(small.file)
    assert any("samples.csv is not a CSV table" in line for line in stated.differences(small.again))
    table.unlink()
    table.symlink_to("/dev/zero")
    with pytest.raises(CorruptFileError, match=r"samples\.csv cannot be read: it is a device"):
        Statement.read(small.file)
    table.unlink()
    stated = Statement.read(small.file)
    assert stated.differences(small.again) == []
    assert stated.remarks(small.again) == ["samples.csv does not exist: its rows were not compared"]
    table.write_text(text)


def test_other_versions_are_remarked_upon(small: Small) -> None:
    about = dict(small.again.about) | {"code_digest": "0" * 16, "torch_version": "0.1"}
    again = replace(small.again, about=about)
    stated = Statement.read(small.file)
    assert stated.differences(again) == []
    first, second = stated.remarks(again)
    assert first.startswith("written with code digest ")
    assert first.endswith(f"; this is {'0' * 16}")
    assert second.startswith("written with torch version ")


def test_damage_is_found_when_a_certificate_is_read(small: Small, tmp_path: Path) -> None:
    """One digit, anywhere; half of a file; a key twice."""
    text, broken = small.file.read_text(), tmp_path / "broken.json"
    # Of the first digits, after a point: the seventeenth may change nothing.
    matches = re.finditer(r"(?<!\d)\d{1,6}(\.\d{1,10})", text)
    digits = [place for match in matches for place in range(*match.span(1))]
    for place in digits[:: len(digits) // 60]:
        if text[place] == ".":
            continue
        broken.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
        with pytest.raises(RunError, match=r"broken.json is (corrupt|a certificate of schema version)"):
            Certificate.load(broken)
    broken.write_text(text[: len(text) // 2])
    with pytest.raises(RunError, match=r"broken.json is corrupt: it is not a JSON file"):
        Certificate.load(broken)
    broken.write_text(text.replace('"clean_loss": [', '"clean_loss": [0.0, 0.0], "clean_loss": [', 1))
    with pytest.raises(CorruptFileError, match=r'broken.json is corrupt: the key "clean_loss" occurs twice'):
        Certificate.load(broken)
    broken.write_text(json.dumps(without_checksum(small.content)))
    with pytest.raises(CorruptFileError, match=r"broken.json is corrupt: it has no sha256"):
        Certificate.load(broken)
    broken.write_text(json.dumps(small.content | {"schema_version": 4}))
    with pytest.raises(
        RunError, match=r"schema version 4; this version of certus reads 7 only: certify again"
    ):
        Certificate.load(broken)
    broken.write_text(json.dumps({"schema_version": 7}))
    with pytest.raises(RunError, match=r"broken.json is not a certificate\."):
        Certificate.load(broken)


def test_settings_that_do_not_fit(small: Small) -> None:
    honest = without_checksum(small.content)
    for part, value in (("settings", {"rho": [1.0], "magic": 1}), ("run", None), ("digests", {})):
        assert "its settings do not fit" in small.found(changed(honest, ("about", part), value))[0]


SAME: list[tuple[Any, Any]] = [
    (1.0, 1.0 + 1e-12),
    (1e-300, 1e-300 * (1 + 1e-12)),
    (0.0, -0.0),
    (3, 3),
    (None, None),
    (2.0, 2),
]
OTHER: list[tuple[Any, Any]] = [
    *((1.0, 1.0 + 1e-8), (1e-300, 1.1e-300), (0.0, 1e-300), (1.0, -1.0), (3, 4), (10**12, 10**12 + 1)),
    *((math.inf, 1e308), (math.inf, -math.inf), (math.nan, math.nan), (True, 1), (False, 0), (None, 0.0)),
    *(("1", 1), (10**400, 1.0)),
]


def test_numbers_that_count_as_equal() -> None:
    for first, second in SAME:
        assert differences([first], [second]) == []
        assert differences([second], [first]) == []
    for first, second in OTHER:
        assert differences([first], [second]) == [f"[0]: {first}, now {second}"]
        assert differences([second], [first])
    assert differences({"a": {"b": 1}}, {"a": {"c": 1}}) == ["a.b: gone", "a.c: new"]
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a: 1 entries, now 2"]
    assert table_differences("a,1.0\ninf,x\n", "a,1.0000000000001\ninf,x\n") == []
    assert table_differences("inf\n", "-inf\n") == ["samples.csv[0][0]: inf, now -inf"]
