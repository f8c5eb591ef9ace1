"""Build the documentation site: ``make docs``, offline and strict.

Pages are written for readers of the repository too, so links lead to files beside ``docs``. In the site those
files are pages: results are copied into ``_results``, others are included. The references of Python and of
the command line are written into ``_api``.
"""

from __future__ import annotations

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

import certus
from certus.cli.app import app

project = "certus"
author = "The certus authors"
copyright = "the certus authors"
release = version = certus.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]  # thumbnails in tables
html_theme = "furo"
html_title = f"certus {release}"
html_static_path, html_css_files = ["_static"], ["site.css"]
exclude_patterns = ["_build"]

autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
napoleon_use_ivar = True  # a documented attribute is no second object

suppress_warnings = ["ref.python"]  # several classes have a gamma

_HERE = Path(__file__).parent
for _written in ("_results", "_api"):  # pages of an earlier build may be gone
    shutil.rmtree(_HERE / _written, ignore_errors=True)
shutil.copytree(_HERE.parent / "results", _HERE / "_results")

_TOP = {name: getattr(certus, name) for name in certus.__all__}
_PARTS = [name for name, thing in _TOP.items() if isinstance(thing, ModuleType)]
_PARTS += ["errors", "kernel.evidence", "layers", "norms"]  # imported by their path
_PART = """# certus.{part}

```{{eval-rst}}
.. automodule:: certus.{part}
   :members:
   :exclude-members: set_fit_request, set_score_request
```
"""


def _opening(thing: object) -> str:
    """Return the first sentence of a docstring."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".").replace("|", "\\|")


def _write_reference(folder: Path) -> None:
    """Write a page for the names at the top, one for each part, and the table that leads to them."""
    folder.mkdir()
    functions = [name for name, thing in _TOP.items() if inspect.isfunction(thing)]
    classes = {name: thing for name, thing in _TOP.items() if inspect.isclass(thing)}
    top = [
        "# certus",
        "",
        "```{eval-rst}",
        *(f".. autofunction:: certus.{name}" for name in functions),
        "```",
    ]
    top += ["", "## Classes", "", "| class | contents |", "|---|---|"]
    for name, thing in classes.items():
        module = thing.__module__.removeprefix("certus.")
        page = module if module in _PARTS else module.split(".")[0]
        top.append(f"| [certus.{name}]({page}.md) | {_opening(thing)} |")
    (folder / "certus.md").write_text("\n".join([*top, ""]))
    rows = ["| module | contents |", "|---|---|"]
    names = ", ".join(f"`{name}`" for name in [*functions, *classes])
    rows.append(f"| [certus](_api/certus.md) | {names} |")
    for part in sorted(_PARTS):
        (folder / f"{part}.md").write_text(_PART.format(part=part))
        rows.append(f"| [certus.{part}](_api/{part}.md) | {_opening(import_module(f'certus.{part}'))} |")
    (folder / "parts.inc").write_text("\n".join(rows) + "\n")


def _write_commands(path: Path) -> None:
    """Write the help text of every command, a section each."""
    sections = [(name, [name]) for name in app.commands]
    page = ""
    for title, arguments in [("certus", []), *sections]:
        shown = CliRunner().invoke(app, [*arguments, "--help"], prog_name="certus", terminal_width=88)
        page += f"\n## {title}\n\n```text\n{shown.output.strip()}\n```\n"
    path.write_text(page)


_write_reference(_HERE / "_api")
_write_commands(_HERE / "_api" / "commands.inc")

_MOVED = {
    "](../results/": "](_results/",
    "](../SECURITY.md": "](security.md",
    "](../CHANGELOG.md": "](changelog.md",
    "](../CONTRIBUTING.md": "](contributing.md",
    "](docs/": "](",
    "](SECURITY.md": "](security.md",
}

_CHILDREN = {
    "data": "Tables <tabular>, Images <images>",
    "training": "certified_training, machines",
    "certificates": "smoothness, Randomised smoothing <smoothing>, parallel",
    "guide": "extending, mdp",
    "results": "_results/README, _results/*/README, how_loose, mdp_results, reliability",
    "api": "_api/certus, _api/*",
    "mathematics": "proofs_certificates, proofs_smoothness, proofs_smoothing, trusted_kernel, paper_map",
    "runs": "verification",
    "contributing": "security, releases",
}
"""Pages that the navigation shows below another. The repository's own view of a page needs no such list."""


def _lead_into_the_site(app: Any, page: str, source: list[str]) -> None:
    """Point links to files beside ``docs`` at their pages.

    Examples lose their last blank line, which doctest needs and a reader does not.
    """
    text = re.sub(r"^(```python\n.*?\n)\n+```$", r"\1```", source[0], flags=re.DOTALL | re.MULTILINE)
    moved = {"](../../docs/": "](../../"} if page.startswith("_results/") else _MOVED
    for outside, inside in moved.items():
        text = text.replace(outside, inside)
    source[0] = text


def _add_children(app: Any, page: str, source: list[str]) -> None:
    """Append the navigation of `_CHILDREN` to a page."""
    if page in _CHILDREN:
        entries = "\n".join(_CHILDREN[page].split(", "))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{entries}\n```\n"


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
    app.connect("source-read", _add_children)
    app.connect("include-read", _lead_included)
