"""A part that two results have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from studies.study import Part, Scale, Study
from studies.workspace import Workspace

QUICK = Scale.QUICK
PART = Part("squared", {"number": 3}, lambda workspace, settings: settings["number"] ** 2)


def result(name: str, part: Part, revision: int = 1) -> Study:
    minutes = dict.fromkeys(Scale, 1.0)
    return Study(name, name, (), minutes, lambda scale: [part], (), lambda measured: [], revision=revision)


def test_it_is_measured_once_and_kept_at_home(tmp_path: Path) -> None:
    """With the environment that it was measured in, which are those of its home."""
    workspace, home = Workspace(tmp_path), result("home", PART, revision=5)
    shared = replace(PART, name="there", home=(home, PART.name))
    guest = result("guest", shared)
    assert workspace.load(guest, QUICK, shared) is None
    workspace.store(home, QUICK, PART, 9.0)
    assert workspace.load(guest, QUICK, shared) == 9.0
    assert workspace.environments_of(guest, QUICK) == workspace.environments_of(home, QUICK) != []
    assert not (tmp_path / "parts/guest").exists()


def test_a_new_revision_at_home_is_a_new_measurement(tmp_path: Path) -> None:
    """Also for the guest, who may be the first to measure it."""
    workspace, home = Workspace(tmp_path), result("home", PART)
    workspace.store(home, QUICK, PART, 9.0)
    raised = result("home", PART, revision=2)
    shared = replace(PART, name="there", home=(raised, PART.name))
    guest = result("guest", shared)
    assert workspace.load(guest, QUICK, shared) is None
    workspace.store(guest, QUICK, shared, 10.0)
    assert workspace.load(raised, QUICK, PART) == 10.0
