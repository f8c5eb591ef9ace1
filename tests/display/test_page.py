"""A report of a small run: what it says is what the certificate says, and whatever the user wrote is text."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from certus._format import at_least, at_most
from certus.certificates.files import read_certificate
from certus.display.report.contents import scope
from certus.display.report.opening import GLOSSARY, Purpose, Subject, certified_recalls, opening_of
from certus.display.report.page import slider
from certus.runs import load_run
from certus.smoothing import SmoothedCertificate
from tests.browser import CUT, OVERLAPS, opened, requested, until
from tests.certificates.small_run import certify_small, make_run
from tests.cli.test_cli import certus, refused

WIDTHS = (1280, 390)
LONG = "od280/od315_of_diluted_wines"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one network: one has a certificate, the other a name that is HTML."""
    place = tmp_path_factory.mktemp("report")
    make_run(place, 1.0)
    (place / "run").rename(place / "<b>&amp;")
    make_run(place, 1.0)
    certify_small(place, 1.0)
    noisy = ("--rho", "0.01", "--smoothing", "0.25", "--draws", "10", "--votes", "9", "--attack-steps", "2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certus.display.render.figure_of", lambda *_: None)
        done = certus("certify", "run", *noisy, folder=place)
    assert done.returncode == 0, done.stderr
    done = certus("report", "run", "<b>&amp;", "--samples", "8", "-o", "page.html", folder=place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def text(place: Path) -> str:
    return (place / "page.html").read_text()


def _told(text: str) -> dict[str, Any]:
    (content,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', text)
    told = json.loads(content)
    assert isinstance(told, dict)
    return told


def test_names_are_text(text: str) -> None:
    """A run may be called like a tag."""
    body = text[text.index("<body>") : text.index("<script")]
    assert "&lt;b&gt;&amp;amp;" in body
    assert "<b>" not in body
    assert "<b>" not in text[text.index('id="report-data"') : text.index("</script>")]


def test_it_opens_with_what_is_stated(place: Path, text: str) -> None:
    found = read_certificate(place / "run/certificate/certificate.json")
    one = found.bracket(found.rhos[-1])
    assert one.error_low is not None
    assert one.error_high is not None
    low, high = at_least(100 * one.error_low, 1), at_most(100 * one.error_high, 1)
    said = re.search(rf"{re.escape(f'{one.distance:.3g}')} .*?{low}% \(stated.*?{high}% \(proven", text)
    assert said is not None
    assert "No certificate yet: `certus certify &lt;b&gt;&amp;amp; --rho 0.01` writes one." in text


def test_how_often_it_errs_now_is_said_once_of_the_same_samples(place: Path, text: str) -> None:
    found = read_certificate(place / "run/certificate/certificate.json")
    now = found.bracket(0.0).error_low
    assert now is not None
    again = f"On these samples, unmoved, the model errs on {100 * now:.1f}% (stated)."
    assert found.about["rows"]["words"].startswith("all ")
    assert f"it errs on {100 * now:.1f}%" in text
    assert again not in text
    assert again not in scope(found)
    for other in ({"total": 10**6}, {"source": "other.csv@all"}):
        assert again in scope(dataclasses.replace(found, about={"rows": found.about["rows"] | other}))


def test_the_slider_reads_out_the_certificate(place: Path, text: str) -> None:
    found, readings = read_certificate(place / "run/certificate/certificate.json"), _told(text)["readings"]
    assert set(found.rhos) <= {reading["rho"] for reading in readings}
    for reading in readings:
        one = found.bracket(reading["rho"])
        assert reading["cells"]["read-0-loss_low"] == at_least(one.loss_low)
        assert reading["cells"]["read-0-error_high"] == at_most(one.error_high or 0.0)
        # Of the file where its rho was asked for; between them, what the stored gamma prove.
        high, stated = reading["cells"]["read-0-loss_high"], at_most(one.loss_high)
        assert high == stated if one.rho in found.rhos else float(high) >= float(stated)
        assert reading["marks"]["bracket-0-loss"] == one.distance


def test_the_read_out_is_one_table(place: Path) -> None:
    """Certificates with and without a population have the same columns, with a dash where nothing is said."""
    found = read_certificate(place / "run/certificate/certificate.json")
    both = [("run", found), ("run", dataclasses.replace(found, population=None))]
    table = slider(both, [0.0, *found.rhos])
    assert table is not None
    assert [len(ids) for _, ids in table["rows"]] == [len(table["heads"])] * 2
    assert [ids.count(None) for _, ids in table["rows"]] == [0, 2]


def test_the_slider_has_a_cell_for_every_number(text: str) -> None:
    ids = {name for reading in _told(text)["readings"] for name in reading["cells"]}
    assert ids == set(re.findall(r'<td id="(read-[^"]+)">[^<]+</td>', text))


def test_certified_accuracy_falls_at_the_radii_of_the_certificate(place: Path, text: str) -> None:
    """As drawn, against a count of the radii: what is proven at ε, and what attacks leave."""
    found = read_certificate(place / "run/certificate/certificate.json")
    assert found.proven_error_cost is not None
    assert found.attained_error_cost is not None
    right, left, *_ = _told(text)["charts"]["accuracy-0"]["data"]
    far, count = right["x"][-1], 0
    for line, costs, side in ((left, found.attained_error_cost, -1), (right, found.proven_error_cost, 0)):
        radii = np.sqrt(costs.numpy() / found.unit_cost)  # "hv" draws the value before, "vh" that after
        for radius in radii[(radii > 0) & (radii < far)]:
            for distance in (radius * (1 - 1e-5), radius * (1 + 1e-5)):
                after = int(np.searchsorted(line["x"], distance))
                assert line["y"][after + side] == pytest.approx((radii > distance).mean())
                count += 1
    assert count > 0


def test_sections_without_data_are_absent(text: str) -> None:
    """Imported runs have no history and no γ."""
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert "Training" not in headings
    assert "What the worst case changes" not in headings
    assert headings == [
        "run",
        "&lt;b&gt;&amp;amp;",
        "Class by class",
        "Where it is fragile",
        "Ten words",
        "The run in sentences",
        "The worst case, from below and from above",
        "Certified accuracy",
        "Certified in noise",
        "Attacks",
        "Nearest errors",
        "Smoothness, layer by layer",
        "Data, seeds, versions, commands",
    ]


def test_the_certificate_in_noise_is_the_one_in_the_file(place: Path, text: str) -> None:
    """Sentence, chart and table, from both sides."""
    found = SmoothedCertificate.load(place / "run/certificate/smoothing.json")
    low, high = found.lower(0.01, "vote"), found.bound(0.01, "vote")
    words = f"err or abstain on {at_least(100 * low, 1)}% (stated) and on at most "
    assert f"{words}{at_most(100 * high, 1)}% (proven, with confidence 0.95)" in text
    for name in ("error", "vote"):
        most, least = (line["y"] for line in _told(text)["charts"][f"noise-0-{name}"]["data"][:2])
        place_of = _told(text)["charts"][f"noise-0-{name}"]["data"][0]["x"].index(0.1)
        assert (least[place_of], most[place_of]) == (found.lower(0.01, name), found.bound(0.01, name))
        assert f"<td>{at_most(found.bound(0.01, name))}</td>" in text.replace(" vacuous", "")


def test_features_of_a_table_are_moved_alone(place: Path, tmp_path: Path) -> None:
    """With the numbers of ``certus sensitivity``; a name of a column is text."""
    with np.load(place / "data.npz") as data:
        rows = zip(data["inputs"].tolist(), data["targets"].tolist(), strict=True)
        lines = [f"a<i>,{LONG},label", *(f"{x},{y},{'abc'[label]}" for (x, y), label in rows)]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    (tmp_path / "net.safetensors").write_bytes((place / "net.safetensors").read_bytes())
    made = ("import", "--model", "mlp:6:tanh", "--weights", "net.safetensors", "--data", "csv:data.csv")
    done = certus(*made, "--target", "label", "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("report", "run", "--samples", "500", "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    done = certus("sensitivity", "run", "--share", "0.1", "--json", folder=tmp_path)
    (bar,) = _told(page)["charts"]["fragile-0"]["data"]
    features = json.loads(done.stdout)["features"]
    assert [one["feature"] for one in features] == [html.unescape(one) for one in bar["customdata"][::-1]]
    for one, low, width in zip(features, bar["base"][::-1], bar["x"][::-1], strict=True):
        assert (low, low + width) == (one["error_low"], pytest.approx(one["error_high"]))
        assert f"<td>{at_most(one['loss_high'])}</td>" in page
    assert "<td>a&lt;i&gt;</td>" in page
    assert "<i>," not in page[page.index("<body>") : page.index("<script")]
    with opened(tmp_path / "page.html", tmp_path, 390) as driver:
        assert "a<i>" in driver.execute_script("return document.getElementById('fragile-0').textContent")
        assert LONG in driver.execute_script("return document.getElementById('fragile-0').textContent")
        assert driver.execute_script(CUT) == []
        assert driver.execute_script(OVERLAPS) == []


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
    assert "it belongs to other weights" in done.stderr
    assert "The worst case, from below" not in (tmp_path / "page.html").read_text()


def test_refused(place: Path) -> None:
    refused(certus("report", "run", "run", folder=place), "must be named once each; got run, run")
    refused(
        certus("report", "run", "--samples", "1", folder=place),
        "`--samples` must be a whole number, at least 2",
    )
    refused(certus("report", "run", "-o", "run/run.json", folder=place), "which belongs to a run")


def test_runs_on_other_data_are_refused_before_any_are_loaded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both runs are named, with their data."""
    again = ("import", "--model", "mlp:6:tanh", "--weights", "net.safetensors", "--data", "npz:data.npz")
    done = certus(*again, "--no-standardize", "--seed", "1", "-o", "other", folder=place)
    assert done.returncode == 0, done.stderr
    for command in ("report", "compare"):
        monkeypatch.setattr("certus.runs.loaded_run.open_run", lambda *_, **__: pytest.fail("loaded"))
        monkeypatch.setattr("certus.runs.loaded_run.open_run", lambda *_, **__: pytest.fail("loaded"))
        refused(
            certus(command, "run", "other", folder=place),
            "`RUNS` must have the same test samples, to be compared; got run with 12 samples of "
            "npz:data.npz, split by seed 0; other with 12 samples of npz:data.npz, split by seed 1.",
        )


def test_nearest_errors_are_steps(text: str) -> None:
    """From no error at 0; a slanted line would claim errors between two that were found."""
    for line in _told(text)["charts"]["nearest"]["data"]:
        assert line["line"]["shape"] == "hv"
        assert (line["x"][0], line["y"][0]) == (0, 0)
        assert line["y"] == sorted(line["y"])


def test_only_failed_attacks_look_hollow(text: str) -> None:
    for line in _told(text)["charts"]["attacks"]["data"]:
        marker = line["marker"]
        assert (marker["color"], marker["opacity"]) == (line["line"]["color"], 1)
        hollow = [symbol == "circle-open" for symbol in marker["symbol"]]
        assert [width > 0 for width in marker["line"]["width"]] == hollow


def test_runs_side_by_side_have_one_scale(text: str) -> None:
    first, second = (_told(text)["charts"][f"layers-{place}"] for place in (0, 1))
    low, high = first["layout"]["xaxis"]["range"]
    assert second["layout"]["xaxis"]["range"] == [low, high]
    assert low == 0
    assert max(*first["data"][0]["x"], *second["data"][0]["x"]) < high


def test_words_for_people(text: str) -> None:
    """No symbol or number that only the code explains."""
    layers = _told(text)["charts"]["layers-0"]["data"][0]["y"]
    assert layers == ["the loss", "2 (Tanh)"]
    for word in ("T_γ", "version of the bounds", "of the inner problem"):
        assert word not in text


def test_figures_in_three_formats(place: Path) -> None:
    done = certus("report", "run", "--samples", "4", "-o", "one.html", "--figures", "drawn", folder=place)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (place / "drawn").iterdir()}
    assert names == {
        f"{name}.{kind}"
        for name in ("attacks", "brackets", "fragile", "nearest", "smoothing", "smoothness")
        for kind in ("png", "svg", "pdf")
    }


_EDGE = """
for (const box of document.querySelectorAll('.scroll')) {
  if (box.scrollWidth <= box.clientWidth) continue;
  box.scrollIntoView({block: 'center'});
  box.scrollLeft = arguments[0];
  const at = box.getBoundingClientRect();
  return [at.right, at.top + box.clientHeight];
}
"""


def _shadow(driver: Any, scrolled: int) -> int:
    """How much darker than its middle the right edge of the first table is that is wider than its box."""
    right, bottom = driver.execute_script(_EDGE, scrolled)
    until(driver, "true")
    with Image.open(io.BytesIO(driver.get_screenshot_as_png())) as page:
        row = page.convert("L").crop((int(right) - 60, int(bottom) - 3, int(right) - 1, int(bottom) - 2))
        levels = np.asarray(row).ravel().tolist()
    return int(max(levels) - levels[-1])


@pytest.mark.parametrize("width", WIDTHS)
def test_in_a_browser(place: Path, tmp_path: Path, width: int) -> None:
    """The slider moves and reads out the certificate; no error, nothing from outside, no text on text."""
    found = read_certificate(place / "run/certificate/certificate.json")
    with opened(place / "page.html", tmp_path, width) as driver:
        assert driver.execute_script(OVERLAPS) == []  # with the appendix closed, as it is at first
        driver.execute_script("document.querySelector('details').open = true")
        until(driver, "document.querySelectorAll('.appendix .main-svg').length > 0")
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
        noise = SmoothedCertificate.load(place / "run/certificate/smoothing.json").quantity("vote")
        chart = driver.execute_script(
            "const d = document.getElementById('noise-0-vote').data;"
            "return d.map(one => [Array.from(one.x), Array.from(one.y), one.name])"
        )
        for (distances, values, name), side in zip(chart, (noise.high, noise.low), strict=False):
            assert name.startswith("at least" if side == noise.low else "at most")
            assert values == [pytest.approx(side(distance**2)) for distance in distances]
        drawn = driver.execute_script("return document.querySelectorAll('.chart .main-svg').length")
        assert drawn >= len(_told((place / "page.html").read_text())["charts"])
        assert driver.execute_script(OVERLAPS) == []
        assert driver.execute_script(CUT) == []
        wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        if width == 390:
            assert _shadow(driver, 0) > 20  # the table goes on to the right, and that shows
            assert _shadow(driver, 10_000) < 5  # its end is reached
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)  # everything is drawn again
        driver.execute_script("window.dispatchEvent(new Event('resize'))")
        until(driver, "getComputedStyle(document.body).color !== 'rgb(27, 31, 36)'")
        assert driver.execute_script(OVERLAPS) == []
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **dark})
        words = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
        assert driver.execute_script(f"return {words}") == "rgb(0, 0, 0)"  # on white paper
        assert driver.get_log("browser") == []
        assert requested(driver) == []


# The opening, for readers who do not write code


def test_the_verdict_follows_the_limit(place: Path, tmp_path: Path) -> None:
    """No limit, one above the proven bound, and one below it."""
    found = read_certificate(place / "run/certificate/certificate.json")
    high = found.bracket(max(found.rhos)).error_high
    assert high is not None
    verdicts = []
    for limit in (None, min(1.0, high + 0.01), high - 0.01):
        options = () if limit is None else ("--require", f"error<={limit}@rho={max(found.rhos)}")
        page = tmp_path / "page.html"
        more = ("--samples", "4", "--author", "A. <Validator>", "--purpose", "tests", "--date", "2026-11-18")
        done = certus("report", "run", *more, *options, "-o", str(page), folder=place)
        assert done.returncode == 0, done.stderr
        text = page.read_text()
        verdicts += re.findall(r'<div class="verdict (\w+)"', text)
        assert "2026-11-18" in text
        assert "Author: A. &lt;Validator&gt;" in text
        body = text[: text.index("<script")]
        assert f"≤ {at_most(100 * high, 1)}%" in body  # without any script
        assert len(text.encode()) < 2_000_000
    assert verdicts == ["none", "pass", "fail"]
    refused(certus("report", "run", "--require", "error<", folder=place), "`--require`")


def test_recall_in_the_worst_case_is_below_any_attack(place: Path) -> None:
    """An adversary who spends the whole budget on one class, by the errors that were found."""
    found = read_certificate(place / "run/certificate/certificate.json")
    assert found.attained_error_cost is not None
    assert found.proven_error_cost is not None
    trained = load_run(place / "run", data=f"npz:{place / 'data.npz'}")
    rho = max(found.rhos)
    recalls = certified_recalls(found, found.bracket(rho))
    targets = trained.data.test.targets
    assert set(recalls) >= set(targets.unique().tolist())
    for label in targets.unique().tolist():
        recall, inside = recalls[label], targets == label
        spent = found.attained_error_cost[inside].sort().values.cumsum(0)
        bought = int((spent <= rho * len(targets)).sum())
        assert recall <= 1 - bought / int(inside.sum()) + 1e-12
        least = found.proven_error_cost[inside].sort().values.cumsum(0)
        assert recall >= 1 - (1 + int((least <= rho * len(targets)).sum())) / int(inside.sum()) - 1e-9


def test_it_prints_to_two_pages(place: Path, tmp_path: Path) -> None:
    done = certus("report", "run", "--samples", "4", "-o", str(tmp_path / "one.html"), folder=place)
    assert done.returncode == 0, done.stderr
    with opened(tmp_path / "one.html", tmp_path, 1280) as driver:
        printed = driver.execute_cdp_cmd(
            "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True}
        )
        pdf = base64.b64decode(printed["data"])
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 2
        # By keyboard: the appendix is the first control, and opens.
        body = driver.find_element("tag name", "body")
        body.send_keys("\ue004")  # Tab
        focused = driver.switch_to.active_element
        assert focused.tag_name == "summary"
        focused.send_keys("\ue007")  # Enter
        until(driver, "document.querySelector('details').open")


def test_numbers_are_there_without_scripts(place: Path, text: str) -> None:
    found = read_certificate(place / "run/certificate/certificate.json")
    bracket = found.bracket(max(found.rhos))
    body = text[: text.index("<script")]
    assert f">{at_most(bracket.loss_high)}</td>" in body
    assert f">{at_least(bracket.error_low or 0.0)}</td>" in body


def _subject(found: Any, **changes: Any) -> Subject:
    facts: dict[str, Any] = {"name": "a run", "certificate": found, "smoothed": None, "classes": 3}
    facts |= {"class_names": ["a", "b", "c"], "targets": torch.tensor([0, 1, 1]), "rows": "3 test rows"}
    facts |= {"error": 0.25, "loss": 0.5, "squared": False, "target_scale": None, "units": "pixels"}
    facts |= {"example": lambda rho: f"as when x alone changes by {rho:g} in every row", "training": None}
    return Subject(**(facts | changes))


def test_a_limit_that_is_not_met_is_open_or_known_to_be_exceeded(place: Path) -> None:
    """By the attained side: below the limit it is open, above it the limit is exceeded."""
    found = read_certificate(place / "run/certificate/certificate.json")
    bracket = found.bracket(found.rhos[-1])
    low, high = bracket.error_low, bracket.error_high
    assert low is not None
    assert high is not None
    assert low < high
    for limit, exceeded in (((low + high) / 2, False), (low / 2, True)):
        purpose = Purpose(requirements=(f"error<={limit}@rho={bracket.rho}",))
        (asked,) = opening_of(_subject(found), purpose).asked
        assert f"{at_most(100 * high, 1)}%" in asked
        assert f"{at_least(100 * low, 1)}%" in asked
        assert ("were found" in asked) == exceeded
        assert ("is open" in asked) == (not exceeded)


def test_openings_without_certificates_and_of_other_kinds(place: Path) -> None:
    """Numbers that nobody computed are dashes; a certificate in noise speaks of the vote alone."""
    opening = opening_of(_subject(None), Purpose(requirements=("error<=0.1@rho=0.01",)))
    assert (opening.outcome, [number.value for number in opening.numbers]) == ("fail", ["25.0%", "–", "–"])
    targets = torch.tensor([0.0, 2.0, 4.0])
    regression = _subject(
        None, classes=None, error=None, loss=0.25, squared=True, target_scale=10.0, targets=targets
    )
    opening = opening_of(regression, Purpose())
    assert "5" in re.findall(r"typical error of (\S+?)\.", opening.numbers[0].sentence)  # the root, scaled
    assert "2.667" in opening.numbers[0].sentence  # the variance of 0, 2, 4
    assert "--clip" in opening.steps[0][1]
    noisy = SmoothedCertificate.load(place / "run/certificate/smoothing.json").verify()
    limit = noisy.bound(0.01, "vote")
    purposes = [Purpose(requirements=(f"vote<={each}@rho=0.01",)) for each in (min(1.0, limit), limit / 2)]
    openings = [opening_of(_subject(None, smoothed=noisy), purpose) for purpose in purposes]
    assert [opening.outcome for opening in openings] == ["pass", "fail"]
    assert openings[0].numbers[1].value == f"≤ {at_most(100 * limit, 1)}%"
    assert openings[0].numbers[2].value == "no bound"
    (asked,) = opening_of(
        _subject(None, smoothed=noisy), Purpose(requirements=("error<=100%@rho=0.01",))
    ).asked
    assert "in noise" in asked
    assert len(GLOSSARY) == 10
