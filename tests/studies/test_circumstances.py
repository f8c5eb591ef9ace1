"""When and with what parts were measured, told together."""

from __future__ import annotations

from studies.circumstances import of_several


def test_several_circumstances_become_one() -> None:
    first = {
        "versions": {"certus": "1", "torch": "2"},
        "threads": 1,
        "machine": {"processor": "A"},
        "date": "2026-01-02",
    }
    assert of_several([first, first]) == first
    later = first | {"threads": 2, "date": "2026-01-03", "versions": {"certus": "1", "numpy": "3"}}
    assert of_several([later, first, None]) == {
        "versions": {"certus": "1", "numpy": "3", "torch": "2"},
        "threads": "2 and 1",
        "machine": {"processor": "A"},
        "date": "2026-01-02 to 2026-01-03",
        "note": "Of 1 of 3 parts it was not recorded when.",
    }
    assert of_several([None]) == {"note": "Of 1 of 1 parts it was not recorded when."}
