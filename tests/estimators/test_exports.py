"""What ``certus.estimators`` offers, and that it is loaded when it is used."""

from __future__ import annotations

import subprocess
import sys

import certus
import certus.estimators


def test_every_name_is_there() -> None:
    assert sorted(certus.estimators.__all__) == certus.estimators.__all__
    assert all(hasattr(certus.estimators, name) for name in certus.estimators.__all__)
    assert "estimators" in certus.__all__


def test_importing_certus_imports_no_estimators() -> None:
    lines = "import sys, certus; assert 'sklearn' not in sys.modules; certus.estimators.RobustClassifier"
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0
