"""The same picture is the same file, whatever the time and the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from certus.display.canvas import new_figure, save_figure


def draw(path: Path) -> bytes:
    figure = new_figure(2, 2)
    axes = figure.subplots()
    axes.plot([1, 2, 3], [3, 1, 2], label="a line")
    axes.fill_between([1, 2, 3], [0, 0, 0], [1, 1, 1])
    axes.legend()
    save_figure(figure, path)
    return path.read_bytes()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_twice(tmp_path: Path, suffix: str) -> None:
    first = draw(tmp_path / f"one.{suffix}")
    assert draw(tmp_path / f"two.{suffix}") == first
    assert b"Date" not in first if suffix != "svg" else b"<dc:date>" not in first
