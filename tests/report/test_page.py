"""A report of a small run: what it says is what the certificate says, and whatever the user wrote is text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from certus.certificates.record import read_certificate
from certus.decimals import at_least, at_most
from tests.browser import OVERLAPS, opened, requested
from tests.certificates.small_run import certify_small, make_run
from tests.cli.test_cli import certus, refused

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one network: one has a certificate, the other a name that is HTML."""
    place = tmp_path_factory.mktemp("report")
    make_run(place, 1.0)
    (place / "run").rename(place / "<b>&amp;")
    make_run(place, 1.0)
    certify_small(place, 1.0)
    done = certus("report", "run", "<b>&amp;", "--samples", "8", "-o", "page.html", folder=place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def text(place: Path) -> str:
    return (place / "page.html").read_text()


def _told(text: str) -> dict[str, Any]:
    (content,) = re.findall(r'<script type="application/json" id="told">(.*?)</script>', text)
    told = json.loads(content)
    assert isinstance(told, dict)
    return told


def test_names_are_text(text: str) -> None:
    """A run may be called like a tag."""
    body = text[text.index("<body>") : text.index("<script")]
    assert "&lt;b&gt;&amp;amp;" in body
    assert "<b>" not in body
    assert "<b>" not in text[text.index('id="told"') : text.index("</script>")]


def test_it_opens_with_what_is_proven(place: Path, text: str) -> None:
    found = read_certificate(place / "run/certificate/certificate.json")
    one = found.bracket(found.rhos[-1])
    assert one.error_low is not None
    assert one.error_high is not None
    low, high = at_least(100 * one.error_low, 1), at_most(100 * one.error_high, 1)
    assert (
        f"the error is at least {low}% (attained: such data were found) and at most {high}% (proven)" in text
    )
    assert "Nothing is assumed about the network." in text
    assert "No certificate yet: certus certify &lt;b&gt;&amp;amp; --rho 0.01 makes one." in text


def test_the_slider_reads_out_the_certificate(place: Path, text: str) -> None:
    found, readings = read_certificate(place / "run/certificate/certificate.json"), _told(text)["readings"]
    assert set(found.rhos) <= {reading["rho"] for reading in readings}
    for reading in readings:
        one = found.bracket(reading["rho"])
        assert reading["cells"]["read-0-loss_low"] == at_least(one.loss_low)
        assert reading["cells"]["read-0-loss_high"] == at_most(one.loss_high)
        assert reading["cells"]["read-0-error_high"] == at_most(one.error_high or 0.0)
        assert reading["marks"]["bracket-0-loss"] == one.distance


def test_sections_without_data_are_absent(text: str) -> None:
    """Imported runs have no history and no γ."""
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert "Training" not in headings
    assert "What the worst case changes" not in headings
    assert headings == [
        "The worst case, from below and from above",
        "Certified accuracy",
        "Attacks",
        "Nearest errors",
        "Smoothness, layer by layer",
        "Data, seeds, versions, commands",
    ]


def test_the_commands_make_it_again(text: str) -> None:
    assert (
        "certus import --weights WEIGHTS --data npz:data.npz --model mlp:6:tanh --no-standardize -o run"
        in text
    )
    assert "certus certify run --rho 0.002 --rho 0.01 --confidence 0.9 --gamma 2.0" in text


def test_a_certificate_of_other_weights_is_left_out(place: Path, tmp_path: Path) -> None:
    make_run(tmp_path, 2.0)
    (place / "run/certificate").rename(tmp_path / "run/certificate")
    try:
        done = certus("report", "run", "--samples", "4", "-o", "page.html", folder=tmp_path)
    finally:
        (tmp_path / "run/certificate").rename(place / "run/certificate")
    assert done.returncode == 0, done.stderr
    assert "it is about other weights" in done.stderr
    assert "The worst case" not in (tmp_path / "page.html").read_text()


def test_refused(place: Path) -> None:
    refused(certus("report", "run", "run", folder=place), "must be named once each; got run, run")
    refused(
        certus("report", "run", "--samples", "1", folder=place),
        "`--samples` must be a whole number, at least 2",
    )
    refused(certus("report", "run", "-o", "run/run.json", folder=place), "which belongs to a run")


def test_figures_in_three_formats(place: Path) -> None:
    done = certus("report", "run", "--samples", "4", "-o", "one.html", "--figures", "drawn", folder=place)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (place / "drawn").iterdir()}
    assert names == {
        f"{name}.{kind}" for name in ("attacks", "brackets", "smoothness") for kind in ("png", "svg", "pdf")
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_in_a_browser(place: Path, tmp_path: Path, width: int) -> None:
    """The slider moves and reads out the certificate; no error, nothing from outside, no text on text."""
    found = read_certificate(place / "run/certificate/certificate.json")
    with opened(place / "page.html", tmp_path, width) as driver:
        grid = [reading["rho"] for reading in _told((place / "page.html").read_text())["readings"]]
        for rho in (found.rhos[0], 0.0, found.rhos[-1]):
            driver.execute_script(
                "const s = document.getElementById('slider'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))",
                grid.index(rho),
            )
            one = found.bracket(rho)
            shown = {
                name: driver.execute_script(f"return document.getElementById('read-0-{name}').textContent")
                for name in ("loss_low", "loss_high", "error_low", "error_high")
            }
            assert shown["loss_low"] == at_least(one.loss_low)
            assert shown["loss_high"] == at_most(one.loss_high)
            assert shown["error_low"] == at_least(one.error_low or 0.0)
            assert shown["error_high"] == at_most(one.error_high or 0.0)
            line = driver.execute_script(
                "return document.getElementById('bracket-0-loss').layout.shapes[0].x0"
            )
            assert line == one.distance
        drawn = driver.execute_script("return document.querySelectorAll('.chart .main-svg').length")
        assert drawn >= len(_told((place / "page.html").read_text())["charts"])
        assert driver.execute_script(OVERLAPS) == []
        wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        assert driver.get_log("browser") == []
        assert requested(driver) == []
