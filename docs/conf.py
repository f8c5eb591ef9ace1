"""How the documentation site is built: ``make docs``, offline and strict.

Pages are written for readers of the repository, too, so links lead to files beside ``docs``. In the site they
are pages of their own: the results are copied into ``_results``, the others are included. The reference has a
page for each part of the library, which is written into ``_api``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import certus

project = "certus"
author = "The certus authors"
copyright = "the certus authors"
release = version = certus.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"certus {release}"
exclude_patterns = ["_build"]

autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
napoleon_use_ivar = True  # a documented attribute is no second object

suppress_warnings = ["ref.python"]  # several classes have a gamma

_HERE = Path(__file__).parent
for _written in ("_results", "_api"):  # pages of an earlier build may be gone
    shutil.rmtree(_HERE / _written, ignore_errors=True)
shutil.copytree(_HERE.parent / "results", _HERE / "_results")

# Those in certus.__all__, and six that are imported by their path.
_PARTS = [name for name in certus.__all__ if isinstance(getattr(certus, name), ModuleType)]
_PARTS += ["errors", "evidence", "layers", "norms"]
_PAGE = """# {part}

```{{eval-rst}}
.. automodule:: certus.{part}
   :members:
   :exclude-members: set_fit_request, set_score_request
```
"""
(_HERE / "_api").mkdir()
for _part in _PARTS:
    (_HERE / "_api" / f"{_part}.md").write_text(_PAGE.format(part=_part))

_MOVED = {
    "](../results/": "](_results/",
    "](../SECURITY.md": "](security.md",
    "](../CHANGELOG.md": "](changelog.md",
    "](../CONTRIBUTING.md": "](contributing.md",
    "](docs/": "](",
    "](SECURITY.md": "](security.md",
}


def _lead_into_the_site(app: Any, page: str, source: list[str]) -> None:
    """Links to files beside ``docs`` become links to their pages. Examples lose their last blank line."""
    text = re.sub(r"^(```python\n.*?\n)\n+```$", r"\1```", source[0], flags=re.DOTALL | re.MULTILINE)
    moved = {"](../../docs/": "](../../"} if page.startswith("_results/") else _MOVED
    for outside, inside in moved.items():
        text = text.replace(outside, inside)
    source[0] = text


def _lead_included(app: Any, path: Path, page: str, source: list[str]) -> None:
    _lead_into_the_site(app, page, source)


def _join_names(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """``a, b: what they are`` has one entry, a/b; Sphinx would take ``a,`` for a type."""
    for number, line in enumerate(lines):
        several = re.match(r"^( +)(\w+(?:, \w+)+)(: .*)$", line)
        if several:
            lines[number] = several[1] + several[2].replace(", ", "/") + several[3]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _join_names, priority=400)  # before napoleon
    app.connect("source-read", _lead_into_the_site)
    app.connect("include-read", _lead_included)
