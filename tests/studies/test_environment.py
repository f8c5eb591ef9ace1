"""When and with what parts were measured, told together."""

from __future__ import annotations

from studies.workspace import merge_environments


def test_several_circumstances_become_one() -> None:
    first = {
        "versions": {"certus": "1", "torch": "2"},
        "threads": 1,
        "machine": {"processor": "A"},
        "date": "2026-01-02",
    }
    assert merge_environments([first, first]) == first
    later = first | {"threads": 2, "date": "2026-01-03", "versions": {"certus": "1", "numpy": "3"}}
    assert merge_environments([later, first, None]) == {
        "versions": {"certus": "1", "numpy": "3", "torch": "2"},
        "threads": "2 and 1",
        "machine": {"processor": "A"},
        "date": "2026-01-02 to 2026-01-03",
        "note": "Of 1 of 3 parts it was not recorded when.",
    }
    assert merge_environments([None]) == {"note": "Of 1 of 1 parts it was not recorded when."}
