"""What is printed of a result is what the command prints; notebooks and pictures show the same numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from torch import nn

from certus import Certificate, certify, fit
from certus.display.text import as_text, make_table
from certus.inner import WRM
from certus.kernel.evidence import mark
from certus.smoothing import SmoothedCertificate, certify_smoothed
from tests.certificates.problems import network, samples
from tests.certificates.small_run import RHO, make_run
from tests.cli.test_cli import certus
from tests.pictures import line_of

QUICK: dict[str, Any] = {"local_radii": 1, "gamma_rounds": 0, "attack_steps": 2}
ASK = ("--rho", str(RHO), "--rho", "0.01", "--attack-steps", "2")
KINDS = {
    "loss and error": ("--local-radii", "0"),
    "population": ("--local-radii", "0", "--confidence", "0.9"),
    "epsilon": ("--local-radii", "0", "--epsilon", "0.05", "--confidence", "0.9"),
    "smoothing": ("--smoothing", "0.25", "--draws", "10", "--votes", "9"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("looks")
    make_run(place, 1.0)
    return place


def lines(text: str) -> list[str]:
    """Without the blanks at the ends of lines, which nobody sees."""
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(("kind", "columns"), [*((kind, "80") for kind in KINDS), ("epsilon", "60")])
def test_print_shows_what_the_command_prints(
    place: Path, kind: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("certus.cli.certify_support.draw_certificate", lambda *_: False)
    monkeypatch.setattr("certus.display.render.figure_of", lambda *_: None)
    monkeypatch.setattr("certus.cli.output.console._width", int(columns))
    done = certus("certify", "run", *ASK, *KINDS[kind], folder=place)
    assert done.returncode == 0, done.stderr
    name, read = "certificate.json", Certificate.load
    if kind == "smoothing":
        name, read = "smoothing.json", SmoothedCertificate.load  # type: ignore[assignment]
    found = read(place / "run" / "certificate" / name)
    if isinstance(found, Certificate):
        assert "stated by" in str(found)
        found = replace(found, statement=mark(found.statement), file=None)  # as if the kernel had checked it
    else:
        found = replace(found.verify(), source=None)
    *said, written = lines(done.stdout)
    assert written.startswith("Written: ")
    assert lines(str(found)) == said
    assert len(said) > 5


def test_a_certificate_without_names() -> None:
    """Made in Python: rows and units have no words, and all else is the same."""
    torch.manual_seed(0)
    inputs = torch.randn(12, 2, dtype=torch.float64)
    found = certify(network("tanh", 0), (inputs, None), rho=0.01, epsilon=0.1, **QUICK)
    assert (
        "About 12 samples. Distance: the root of rho, a root mean square distance, in the norm of the cost."
        in str(found)
    )
    assert "at most epsilon, in the norm of the cost." in str(found)
    assert repr(found) == "<Certificate of 12 samples at rho 0.01: proven, labels predicted>"


def test_an_exact_certificate_says_so() -> None:
    inputs = samples(0, 20)[0].numpy()
    labels = (inputs[:, 0] > 0).astype(int)
    found = certify(LogisticRegression().fit(inputs, labels), (inputs, labels), rho=0.1)
    assert "exact 100%" in str(found)


def test_without_a_proof_it_says_why() -> None:
    data = (torch.eye(2, dtype=torch.float64), torch.arange(2))
    hinge = nn.MultiMarginLoss(reduction="none")
    found = certify(nn.Linear(2, 2), data, rho=0.01, criterion=hinge, **QUICK)
    assert "no proof" in lines(str(found))[1]
    assert f"No proof: {found.no_proof}" in str(found)
    assert repr(found) == "<Certificate of 2 samples at rho 0.01: attained>"


class Texts(HTMLParser):
    """Tags, and the texts between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_shows_the_same_numbers() -> None:
    """Every cell and every sentence; what a file calls its rows is text, also if it looks like HTML."""
    found = certify(network("tanh", 0), samples(0, 12), rho=(0.01, 0.1), **QUICK)
    found.about.update(rows={"words": "<script>rows</script> & more"}, units="<b>")
    page = Texts()
    page.feed(found._repr_html_())
    assert set(page.tags) == {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
    shown = " ".join(page.texts).split()
    assert shown == str(found).split()
    assert "<script>rows</script>" in shown


def test_pictures(tmp_path: Path) -> None:
    found = certify(network("tanh", 0), samples(0, 12), rho=0.1, **QUICK)
    figure = found.plot(tmp_path / "a.svg", title="Mine")
    assert isinstance(figure, Figure)
    distances, values = line_of(figure.axes[0], "at most (proven)")
    assert values[-1] == pytest.approx(found.bound(distances[-1] ** 2), rel=1e-6)
    assert "<!-- Mine -->" in (tmp_path / "a.svg").read_text()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_the_picture_of_a_certificate_by_smoothing() -> None:
    inputs = samples(0, 40)[0]
    labels = (inputs[:, 0] > 0).long()
    found = certify_smoothed(
        lambda points: (points[:, 0] > 0).astype(int),
        (inputs.numpy(), labels.numpy()),
        rho=0.01,
        sigma=0.25,
        draws=10,
        votes=9,
        attack_steps=0,
    )
    distances, values = line_of(found.plot().axes[0], "at most (proven)")
    assert values[-1] == found.bound(distances[-1] ** 2)
    assert "in the norm of the cost" in str(found)
    assert repr(found).startswith("<SmoothedCertificate of 35 samples at rho 0.01: proven, with the premises")


def test_a_fit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(20, 2), torch.arange(20) % 2
    plain = fit(nn.Linear(2, 2), (inputs, targets), epochs=2)
    robust = fit(nn.Linear(2, 2), (inputs, targets), method=WRM(2.0), epochs=12)
    head, *rows = lines(str(plain))
    assert head.split("  ")[0] == "epoch"
    assert "gamma" not in head  # ERM measures none
    assert "training loss" in head  # and moves nothing
    assert line_of(plain.plot().axes[0], "training")[0] == [1, 2]
    assert "loss, moved" in " ".join(str(robust).split())
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert robust.robustness is not None
    assert f"rho_hat {robust.robustness.rho_hat:.4g} at gamma 2." in str(robust)
    assert "(estimated)" in str(robust)
    begun = [line.split()[0] for line in lines(str(robust)) if line.strip()]
    assert [int(word) for word in begun if word.isdigit()] == list(range(3, 13))
    assert "Robust loss: the moved loss minus gamma times rho (phi)" in str(robust)
    assert "Robust loss" not in str(plain)
    assert "These are the last 10 of 12 epochs." in str(robust)
    assert "epochs" not in str(plain)
    assert "Gamma follows" not in str(robust)
    guided = fit(nn.Linear(2, 2), (inputs, targets), method=WRM(rho=0.01), epochs=2)
    assert "Gamma is adjusted to the requested rho" in str(guided)
    figure = robust.plot(tmp_path / "a.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["mean loss", "accuracy", "gradients per sample"]
    epochs, losses = line_of(figure.axes[0], "training, at moved inputs")
    assert epochs == list(range(1, 13))
    assert losses == [entry.loss for entry in robust.history]
    assert figure.axes[0].get_ylim()[1] > max(losses)  # no mark is cut
    assert list(figure.axes[0].get_xticks()) == [1, 2, 4, 6, 8, 10, 12]
    assert figure.axes[0].get_xlim() == (0.5, 12.5)
    assert list(plain.plot().axes[0].get_xticks()) == [1, 2]
    assert (tmp_path / "a.png").exists()


def test_heads_break_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    found = fit(nn.Linear(2, 2), (torch.randn(8, 2), torch.arange(8) % 2), method=WRM(2.0), epochs=1)
    monkeypatch.setenv("COLUMNS", "72")
    first = str(found).splitlines()[:2]
    assert all(len(line) <= 72 for line in first)
    words = set(re.findall(r"\S+", " ".join(first)))
    assert {"epoch", "loss,", "moved", "accuracy,", "gradients", "seconds"} <= words


def test_no_colours_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bold head is for terminals."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    made = make_table("name")
    made.add_row("a")
    assert as_text([made, "b"]) == "name\na\nb"


def test_words_begin_on_the_left_and_numbers_end_on_the_right() -> None:
    made = make_table("name", "size", "what it is", words=("what it is",))
    made.add_row("a", "1", "rings")
    made.add_row("b", "100", "a")
    assert as_text([made]).splitlines()[1:] == ["a        1  rings", "b      100  a"]
