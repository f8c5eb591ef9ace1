"""``BOUNDS_VERSION`` is raised with every change to a file that bounds rest on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

from certus import Box, certify
from certus.certificates.proven.version import BOUNDS_VERSION
from certus.costs import LabelCost, Masked, SquaredSup, WeightedL2
from certus.losses import SquaredError
from tests.certificates.problems import network, samples
from tools import bounds_sources
from tools.bounds_sources import REMEDY, ROOT, changes, code, main, sources, state


def test_the_number_was_raised_with_every_change() -> None:
    recorded, now = json.loads(bounds_sources.RECORD.read_text()), state()
    changed = changes(recorded, now)
    assert not changed, f"Changed since version {recorded['version']} of the bounds: {changed}. {REMEDY}"
    assert recorded["version"] == BOUNDS_VERSION, REMEDY


def test_whatever_certify_runs_is_among_the_sources() -> None:
    """Imports are followed in the text; here functions are watched as they are called."""
    called: set[str] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        called.add(frame.f_code.co_filename)

    model, (inputs, labels) = network("tanh", 0), samples(0, 8)
    images = inputs.reshape(8, 1, 1, 2)
    image = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ELU(), nn.Flatten(), nn.Linear(4, 3)).double()
    masked = Masked(WeightedL2(torch.tensor([[[1.0, 2.0]]])), torch.tensor([[[True, False]]]))
    quick: dict[str, Any] = {"rho": 0.1, "gammas": [2.0], "balls": 1, "refine": 1, "attack_steps": 1}
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        certify(model, (inputs, labels), confidence=0.9, label_cost=LabelCost(1.0, 3), **quick)
        certify(image, (images, labels), cost=masked, **quick)
        certify(model, (inputs, labels), cost=SquaredSup(), domain=Box(-1.0, 1.0), **quick)
        certify(
            network("elu", 0, classes=1),
            (inputs, labels.double()),
            criterion=SquaredError(),
            clip=4.0,
            **quick,
        )
    finally:
        sys.setprofile(before)
    package = ROOT / "src/certus"
    ours = {str(Path(name).relative_to(ROOT)) for name in called if Path(name).is_relative_to(package)}
    assert len(ours) > 40
    assert ours <= set(sources())


def test_what_counts_as_code() -> None:
    text = '''"""Words."""

VALUE = 1  # a remark
"""More words."""


def double(x: str) -> str:
    """Twice."""
    if x:
        return x + x  # "#" in a remark
    return "# no remark"
'''
    wanted = ["VALUE = 1", "def double(x: str) -> str:", "    if x:", "        return x + x"]
    assert code(text).splitlines() == [*wanted, '    return "# no remark"']
    other = text.replace('    return "', '        return "')  # indentation alone
    assert code(other) != code(text)


def test_nothing_new_is_recorded_under_an_old_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "bounds.json"
    monkeypatch.setattr(bounds_sources, "RECORD", record)
    main()
    assert json.loads(record.read_text()) == state()
    name = "src/certus/bounds/spectral.py"
    old = state()
    old["files"][name] = "0" * 16
    record.write_text(json.dumps(old))
    with pytest.raises(SystemExit, match=rf"Changed since version \d+: {name}\. Raise BOUNDS_VERSION in"):
        main()
    monkeypatch.setattr(bounds_sources, "BOUNDS_VERSION", BOUNDS_VERSION + 1)
    main()
    assert json.loads(record.read_text())["version"] == BOUNDS_VERSION + 1
    assert "version" in capsys.readouterr().out
