"""Names of columns are shown as they are, whatever they look like; examples of moves cost what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from tests.browser import opened, until
from tests.cli.test_cli import certus

NAMES = ("<b>size</b>", "$x$ and $y$", "<img src=x onerror=hit()>", "2019", "&lt;")
QUICK = ("--epochs", "1", "--model", "mlp:4:elu", "--rho", "0.1")
CERTIFY = ("--rho", "0.01", "--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0")


def first_card(page: Path) -> str:
    return page.read_text().partition("<h2>")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose names look like markup, mathematics, a number and an entity."""
    folder, draws = tmp_path_factory.mktemp("names"), np.random.default_rng(0)
    columns = draws.normal(size=(80, len(NAMES)))
    rows = [
        ",".join([*(f"{value:.4f}" for value in row), "yes" if row.sum() > 0 else "no"]) for row in columns
    ]
    (folder / "data.csv").write_text("\n".join([",".join([*NAMES, "label"]), *rows]))
    done = certus("train", "csv:data.csv", *QUICK, "--target", "label", "-o", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    done = certus("report", "run", "--samples", "6", "-o", "page.html", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_charts_show_names_as_they_are(place: Path, tmp_path: Path) -> None:
    with opened(place / "page.html", tmp_path, 1280) as driver:
        for chart in ("fragile-0", "features-0"):
            ticks = f"Array.from(document.querySelectorAll('#{chart} .ytick text'))"
            until(driver, f"{ticks}.length === {len(NAMES)}")
            shown = driver.execute_script(f"return {ticks}.map(one => one.textContent)")
            assert sorted(shown) == sorted(NAMES)
            for place_of in range(len(NAMES)):
                driver.execute_script(
                    f"Plotly.Fx.hover('{chart}', [{{curveNumber: 0, pointNumber: {place_of}}}])"
                )
                words = f"document.querySelector('#{chart} .hoverlayer').textContent"
                until(driver, f"{json.dumps(NAMES)}.some(name => {words}.includes(name))")
        assert driver.get_log("browser") == []


def test_no_other_script_runs(place: Path, tmp_path: Path) -> None:
    """The page's own scripts and styles do; what would have slipped into it does not."""
    page = (place / "page.html").read_text()
    strange = "<script>window.hit = 1</script><img src='data:,x' onerror='window.hit = 2'>"
    (place / "strange.html").write_text(page.replace("</body>", f"{strange}</body>"))
    with opened(place / "strange.html", tmp_path, 1280) as driver:
        until(driver, "document.querySelectorAll('.chart .main-svg').length > 0")
        assert driver.execute_script("return window.hit === undefined")
        padding = "getComputedStyle(document.querySelector('.card')).borderRadius"
        assert driver.execute_script(f"return {padding}") == "8px"
        blocked = [entry["message"] for entry in driver.get_log("browser")]
        assert any("Content Security Policy" in message for message in blocked)


def test_pictures_show_names_as_they_are(place: Path) -> None:
    with mpl.rc_context({"svg.fonttype": "none"}):
        done = certus("sensitivity", "run", "--samples", "6", "--plot", "drawn.svg", folder=place)
    assert done.returncode == 0, done.stderr
    assert re.search(r">\d\. \$x\$ and \$y\$</text>", (place / "drawn.svg").read_text())


@pytest.mark.quick_share(3)
@pytest.mark.parametrize(("price", "change"), [("", 1.0), ("size=4", 0.5), ("size=inf", 0.2)])
def test_the_example_of_a_move_costs_rho(price: str, change: float, tmp_path: Path) -> None:
    """Values 0 and 20 have a standard deviation of 10: ρ = 0.01 is a tenth of it, half of that at price 4.

    With the column frozen it is the other one, which is 0 or 4.
    """
    rows = [f"{20 * (at % 2)},{4 * (at // 2 % 2)},{'ab'[at % 2]}" for at in range(200)]
    (tmp_path / "data.csv").write_text("\n".join(["size,age,label", *rows]))
    prices = ("--feature-cost", price) if price else ()
    done = certus("train", "csv:data.csv", *QUICK, *prices, "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("certify", "run", *CERTIFY, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("report", "run", "--samples", "4", "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    name = "age" if price == "size=inf" else "size"
    said = re.search(rf"as when {name} \D*([\d.]+)", first_card(tmp_path / "page.html"))
    assert said is not None
    assert float(said[1]) == pytest.approx(
        change, rel=0.05
    )  # the split is random, so the deviation is near 10


@pytest.mark.quick_share(3)
@pytest.mark.parametrize(("cost", "each"), [("natural", 0.05), ("linf", 0.1), ("l1", 0.025)])
def test_the_example_of_pixels_costs_rho(cost: str, each: float, tmp_path: Path) -> None:
    """Four pixels at ρ = 0.01: one alone by 0.1; all by 0.1/√4 in L2, 0.1 in the sup-norm, 0.1/4 in L1."""
    draws = np.random.default_rng(0)
    images = draws.uniform(size=(60, 1, 2, 2))
    np.savez(tmp_path / "data.npz", inputs=images, targets=(images[:, 0, 0, 0] > 0.5).astype(np.int64))
    done = certus("train", "npz:data.npz", *QUICK, "--cost", cost, "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("certify", "run", *CERTIFY, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("report", "run", "--samples", "4", "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = re.search(r"one pixel\D*([\d.]+)\D*4 by ([\d.]+)", first_card(tmp_path / "page.html"))
    assert said is not None
    assert [float(number) for number in said.groups()] == pytest.approx([0.1, each], rel=0.01)
