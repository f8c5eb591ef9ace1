"""The page of what proofs rest on is true."""

from __future__ import annotations

from tools.trusted_kernel import PAGE, kernel, page


def test_the_page_says_what_the_sources_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "Run `python -m tools.trusted_kernel`."


def test_the_kernel_has_no_ascent_and_no_attack() -> None:
    parts = {path.parts[path.parts.index("certus") + 1] for path in kernel()}
    assert not parts & {"surrogate", "attacks", "training", "runs", "figures", "models", "data", "cli", "mdp"}
