"""``tools.baseline`` notices every change that it promises to notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.baseline import differences

BEFORE = {"a": {"weights": "0f", "upper": 2.0, "lower": 1.0, "upper error": None}}


@pytest.mark.parametrize(
    ("name", "value", "noticed"),
    [
        ("weights", "0e", True),
        ("upper", 2.0 * (1 + 1e-11), True),
        ("upper", 2.0 * (1 + 1e-13), False),
        ("upper", 1.5, False),  # tighter
        ("lower", 1.0 - 1e-11, True),
        ("lower", 1.0 + 1e-11, True),
        ("lower", 1.0 + 1e-13, False),
        ("upper error", 0.5, True),
    ],
)
def test_a_changed_number(name: str, value: object, noticed: bool) -> None:
    assert bool(list(differences(BEFORE, {"a": BEFORE["a"] | {name: value}}))) == noticed


def test_a_missing_case_or_number() -> None:
    assert list(differences(BEFORE, {}))
    assert list(differences(BEFORE, {"a": {"weights": "0f"}}))
    assert not list(differences(BEFORE, BEFORE))


@pytest.mark.soak
def test_a_checkout_agrees_with_itself() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tools.baseline", str(root), "--only", "certificate linear"]
    outcome = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("2 cases")
