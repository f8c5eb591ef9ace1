"""What ``certus.sklearn`` offers, and that it is loaded when it is used."""

from __future__ import annotations

import subprocess
import sys

import certus
import certus.sklearn


def test_every_name_is_there() -> None:
    assert sorted(certus.sklearn.__all__) == certus.sklearn.__all__
    assert all(hasattr(certus.sklearn, name) for name in certus.sklearn.__all__)
    assert "sklearn" in certus.__all__


def test_importing_certus_imports_no_estimators() -> None:
    lines = "import sys, certus; assert 'sklearn' not in sys.modules; certus.sklearn.RobustClassifier"
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0
