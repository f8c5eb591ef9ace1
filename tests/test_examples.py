"""The demo runs as a user would run it, and refuses bad values in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from certus.datasets import digits
from tests.pictures import pixels_of, words_of

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_demo_prints_a_table_and_draws_what_it_says(
    drawn: list[Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    import digits as demo

    monkeypatch.setattr(sys, "argv", ["digits.py", "--epochs", "2", "--output", str(tmp_path)])
    monkeypatch.setattr(demo, "BUDGETS", (demo.SHOWN,))
    with torch.random.fork_rng():
        demo.main()
    said = capsys.readouterr()
    assert said.err == ""
    assert "Estimated, not proven" in said.out
    (row,) = re.findall(r"^  0\.25 +0\.50 +([\d.]+)% +([\d.]+)%", said.out, re.MULTILINE)
    erm, wrm = (float(share) for share in row)
    assert wrm > erm + 5  # even after two epochs
    words, data = words_of(drawn[0]), digits().test
    title = re.search(r"Digits moved equally far: ERM reads (\d+)%, WRM reads (\d+)%", "\n".join(words))
    assert title is not None
    assert [int(title[1]), int(title[2])] == pytest.approx([erm, wrm], abs=0.56)  # both are rounded
    assert {"Original", "ERM", "WRM", "$T_γ$"} <= set(words)
    # Ten originals, then the ten that ERM reads and the ten changes that made them.
    shown = [np.asarray(axes.images[0].get_array()) for axes in drawn[0].axes if axes.images]
    for digit in range(10):
        first = data.inputs[data.targets == digit][0, 0].numpy()
        np.testing.assert_array_equal(shown[digit], first)
        moved, change = shown[10 + 2 * digit : 12 + 2 * digit]
        np.testing.assert_allclose(moved - first, change, atol=1e-6)
        assert 0 < np.linalg.norm(change) <= 0.5 + 1e-4
    # What is read stands above, blue with a tick or vermilion with a cross.
    marks = [word for word in words if re.fullmatch(r"\d [✓✗]", word)]
    assert len(marks) == 30
    for place, mark in enumerate(marks):
        assert (mark[0] == str(place % 10)) == (mark[2] == "✓")
    pixels = pixels_of(tmp_path / "digits.png")
    assert pixels["#0072B2"] > 1000
    assert pixels["#D55E00"] > 1000


def refusal(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Exit code and stderr."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import digits as demo

    monkeypatch.setattr(sys, "argv", ["digits.py", *options])
    with pytest.raises(SystemExit) as left:
        demo.main()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs must be at least 1; got 0"),
        (["--gamma", "-1"], "`gamma` must be positive and finite; got -1.0."),
        (["--seed", "-1"], "--seed must be from 0 to 2^63 - 1; got -1"),
        (["--output", "/dev/null/x"], "--output must be a folder that can be written to"),
    ],
)
def test_bad_values_are_refused(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = refusal(options, monkeypatch, capsys)
    assert code == 2
    assert message in said
    assert said.count("\n") == 1


def test_the_demo_is_a_script() -> None:
    command = [sys.executable, str(EXAMPLES / "digits.py"), "--epochs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "digits.py: error: --epochs must be at least 1; got 0\n"
