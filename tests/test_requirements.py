"""Requirements: what is read, what is refused, and outcomes for CI systems."""

from __future__ import annotations

import math
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from certus.certificates.gate import outcome
from certus.errors import ArgumentError, FailedCheckError, UnsupportedError
from certus.requirements import QUANTITIES, Attack, GateResult, Requirement, parsed

READ = {
    "error<=0.12@rho=0.01": Requirement("", "error", 0.12, 0.01),
    " loss <= 5e-1 ": Requirement("", "loss", 0.5),
    "error≤12%": Requirement("", "error", 0.12),
    "recall[yes]>=0.8": Requirement("", "recall", 0.8, label="yes"),
    "recall[a<=b]>=.8@rho=1e-3": Requirement("", "recall", 0.8, 0.001, label="a<=b"),
    "population:fpr[ a class ]<=0.1": Requirement("", "fpr", 0.1, population=True, label="a class"),
    "balanced_error<=1": Requirement("", "balanced_error", 1.0),
    "expected_cost[0,1;5,0]<=3": Requirement("", "expected_cost", 3.0, matrix=((0, 1), (5, 0))),
    "expected_cost[0 -1e0; 5 0]<=3": None,
    "accuracy@pgd:inf:0.1>=0.8": Requirement("", "accuracy", 0.8, attack=Attack("pgd", "inf", 0.1)),
    "accuracy@fgm:2:0>=0": Requirement("", "accuracy", 0.0, attack=Attack("fgsm", "2", 0.0)),
    "accuracy@certified:0.3>=70%": Requirement("", "accuracy", 0.7, attack=Attack("certified", "", 0.3)),
    "vote<=0.1@rho=0": Requirement("", "vote", 0.1, 0.0),
}


@pytest.mark.parametrize(("text", "meant"), READ.items())
def test_reading(text: str, meant: Requirement | None) -> None:
    if meant is None:
        with pytest.raises(ArgumentError, match="on its diagonal"):
            Requirement.parse(text)
        return
    read = Requirement.parse(text)
    names = ("quantity", "rho", "population", "label", "matrix", "attack")
    assert [getattr(read, name) for name in names] == [getattr(meant, name) for name in names]
    assert read.limit == pytest.approx(meant.limit)
    assert read.text == text.strip()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "have the form"),
        ("error", "have the form"),
        ("error<=", "have the form"),
        ("error<=much", "have the form"),
        ("error<=0.1@rho", "have the form"),
        ("error<=0.1 or so", "have the form"),
        ("errors<=0.1", "one of error, loss, recall"),
        ("error>=0.1", "compare error by <="),
        ("error<0.1", "compare error by <="),
        ("error==0.1", "have the form|compare error"),
        ("recall[yes]<=0.1", "compare recall by >="),
        ("recall>=0.1", r"name a class, such as recall\[yes\]"),
        ("recall[ ]>=0.1", "name a class"),
        ("error[yes]<=0.1", "name no class for error"),
        ("error<=20", "0.2 for 20%"),
        ("error<=-0.1", "share from 0 to 1"),
        ("loss<=1e999", "finite limit"),
        ("error<=0.1@rho=-1", "rho from 0"),
        ("error<=0.1@rho=1e31", "rho from 0"),
        ("accuracy>=0.1", "name the attack of accuracy"),
        ("accuracy@pgd>=0.1", "name the attack of accuracy"),
        ("accuracy@magic:2:1>=0.1", "name the attack of accuracy"),
        ("accuracy@pgd:3:0.1>=0.1", "name a norm of"),
        ("accuracy@pgd:2:much>=0.1", "radius of the attack"),
        ("accuracy@pgd:2:-1>=0.1", "radius of the attack"),
        ("accuracy@pgd:2:1>=0.1@rho=1", "leave out rho"),
        ("error@pgd:2:1<=0.1", "attack for accuracy alone"),
        ("expected_cost<=1", "name a matrix"),
        ("expected_cost[0,1]<=1", "as many rows"),
        ("expected_cost[0,1;1]<=1", "as many rows"),
        ("expected_cost[0,1e99;1,0]<=1", "as many rows"),
        ("expected_cost[no-such-file.csv]<=1", "file of costs"),
    ],
)
def test_refusals_name_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        Requirement.parse(text)


def test_nonsense_is_refused_or_read() -> None:
    """Random strings of the grammar's own pieces never end in anything but a requirement or its error."""
    drawn = random.Random(3)
    pieces = [
        *QUANTITIES,
        "[",
        "]",
        "@",
        "pgd:inf:0.1",
        "<=",
        ">=",
        "0.1",
        "%",
        "rho=",
        "population:",
        " ",
        ";",
        "é",
    ]
    read = 0
    for _ in range(3000):
        text = "".join(drawn.choices(pieces, k=drawn.randint(1, 7)))
        try:
            read += Requirement.parse(text).limit >= 0
        except ArgumentError:
            continue
    assert read > 0


def test_costs_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("0, 1\n5, 0\n")
    assert Requirement.parse(f"expected_cost[{path}]<=1").matrix == ((0, 1), (5, 0))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match=r"file of costs|as many rows"):
        Requirement.parse(f"expected_cost[{path}]<=1")


def test_several_or_none() -> None:
    one = Requirement.parse("error<=1")
    assert parsed("error<=1") == parsed(one) == parsed(["error<=1"]) == [one]
    with pytest.raises(ArgumentError, match="be given"):
        parsed([])


@pytest.mark.parametrize(
    ("text", "value", "passed", "margin"),
    [
        ("error<=0.25", 0.25, True, 0.0),
        ("error<=0.25", 0.5, False, -0.25),
        ("recall[a]>=0.25", 0.5, True, 0.25),
        ("recall[a]>=0.25", 0.125, False, -0.125),
        ("loss<=1", None, False, None),
        ("loss<=1", math.inf, False, None),
        ("loss<=1", math.nan, False, None),
        ("recall[a]>=0.25", math.nan, False, None),
    ],
)
def test_judging(text: str, value: float | None, passed: bool, margin: float | None) -> None:
    judged = outcome(Requirement.parse(text), 0.1, value, "proven")
    assert (judged.passed, judged.margin) == (passed, margin)
    result = GateResult((judged,))
    assert bool(result) is result.passed is passed
    if passed:
        result.require()
    else:
        with pytest.raises(FailedCheckError, match="1 of 1 requirements failed"):
            result.require()


def test_reports_for_ci_systems() -> None:
    """JUnit as an XML parser reads it, GitHub's workflow commands, and a table; texts may hold anything."""
    good = outcome(Requirement.parse("error<=50%@rho=0.1"), 0.1, 0.3, "proven")
    bad = outcome(Requirement.parse('recall[<&"\n]>=0.8'), 0.1, 0.3, "proven", "a remark")
    result = GateResult((good, bad), ("Remark.",))
    suite = ElementTree.fromstring(result.junit())[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    first, second = suite.findall("testcase")
    assert first.find("failure") is None
    failure = second.find("failure")
    assert failure is not None
    assert "0.5" in (failure.get("message") or "")
    notice, error = result.annotations()
    assert notice.startswith("::notice title=certus gate::error<=50%25@rho=0.1")
    assert error.startswith("::error title=certus gate::")
    assert "\n" not in error
    assert "FAIL" in str(result)
    assert "1 of 2 fail." in str(result)
    assert result.as_json()["outcomes"][0]["margin"] == pytest.approx(0.2)
    with pytest.raises(UnsupportedError, match="plot the certificate"):
        result.plot()
