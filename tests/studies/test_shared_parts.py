"""A part that two results have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from studies.reproduction import Extent, Part, Reproduction
from studies.workshop import Workshop

QUICK = Extent.QUICK
PART = Part("squared", {"number": 3}, lambda workshop, settings: settings["number"] ** 2)


def result(name: str, part: Part, revision: int = 1) -> Reproduction:
    minutes = dict.fromkeys(Extent, 1.0)
    return Reproduction(
        name, name, (), minutes, lambda extent: [part], (), lambda measured: [], revision=revision
    )


def test_it_is_measured_once_and_kept_at_home(tmp_path: Path) -> None:
    """With the circumstances that it was measured in, which are those of its home."""
    workshop, home = Workshop(tmp_path), result("home", PART, revision=5)
    shared = replace(PART, name="there", home=(home, PART.name))
    guest = result("guest", shared)
    assert workshop.kept(guest, QUICK, shared) is None
    workshop.keep(home, QUICK, PART, 9.0)
    assert workshop.kept(guest, QUICK, shared) == 9.0
    assert workshop.circumstances_of(guest, QUICK) == workshop.circumstances_of(home, QUICK) != []
    assert not (tmp_path / "parts/guest").exists()


def test_a_new_revision_at_home_is_a_new_measurement(tmp_path: Path) -> None:
    """Also for the guest, who may be the first to measure it."""
    workshop, home = Workshop(tmp_path), result("home", PART)
    workshop.keep(home, QUICK, PART, 9.0)
    raised = result("home", PART, revision=2)
    shared = replace(PART, name="there", home=(raised, PART.name))
    guest = result("guest", shared)
    assert workshop.kept(guest, QUICK, shared) is None
    workshop.keep(guest, QUICK, shared, 10.0)
    assert workshop.kept(raised, QUICK, PART) == 10.0
