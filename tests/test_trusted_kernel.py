"""The page of what proofs rest on is true."""

from __future__ import annotations

from tools.trusted_kernel import KERNEL, PAGE, PARTS, page


def test_the_page_says_what_the_sources_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "Run `python -m tools.trusted_kernel`."


def test_every_file_has_its_place() -> None:
    named = [name for names in PARTS.values() for name in names]
    assert sorted(named) == sorted(path.stem for path in KERNEL.glob("*.py") if path.stem != "__init__")
