"""The page of everything that a proven number rests on, file by file, with line counts.

python -m tools.trusted_kernel      # writes docs/trusted_kernel.md anew
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.sources import ROOT, closure, code

PAGE = ROOT / "docs" / "trusted_kernel.md"

PARTS = {
    "The rules": ("certificates/proven",),
    "Certificates by smoothing": ("smoothing",),
    "The smoothness of a network": ("bounds",),
    "Constants of costs, norms, domains and losses": ("costs", "norms.py", "domains.py", "losses.py"),
    "Vocabulary": ("",),
}
"""Heading → where its files are; a file belongs to the first that fits."""

SMOOTHING = ("binomial", "voting", "neyman_pearson", "coefficients")
"""What is pure mathematics of ``smoothing``."""

ASSEMBLY = tuple(
    f"certificates/{name}"
    for name in (
        "dual_values",
        "aggregate",
        "engine",
        "error_costs",
        "_certify",
        "linear",
        "certificate",
        "population",
        "alarm",
    )
)
DRAWN = tuple(
    f"smoothing/{name}"
    for name in ("_certify", "predictors", "sampling", "design", "confidence", "certificate")
)
"""What draws and counts, of ``smoothing``."""

_INTRODUCTION = """\
# What a proven number rests on

A number that certus calls *proven* follows from the code below. It also rests on float64 arithmetic as
IEEE 754 defines it, and on NumPy and PyTorch computing sums, products, eigenvalues and Fourier transforms as
accurately as `src/certus/rounding.py` assumes. A reviewer who distrusts everything else reads these files and
no others: they import no attack, no ascent, no run directory and no picture, and a test says so. What an
ascent or an attack finds can make a bound loose, never wrong.

A statement with a confidence also assumes that the samples are independent draws, and that nothing was tuned
on them. One by smoothing assumes Gaussian noise that is exact, and a model that answers the same when it is
asked again. *Lines* counts everything; *code* leaves out comments, docstrings and blank lines.

This page is written by `python -m tools.trusted_kernel`; a test compares it with the sources.
"""

_ASSEMBLED = """
## Putting it together

These files call the kernel and take minima, means and maxima of what it says. They know the ascents and
attacks as well.
"""


def kernel() -> list[Path]:
    """The files of the kernel: the rules, the smoothness bounds, and all that they import."""
    package = ROOT / "src" / "certus"
    mathematics = [package / "smoothing" / f"{name}.py" for name in SMOOTHING]
    rules = sorted((package / "certificates" / "proven").glob("*.py"))
    return closure([*rules, *mathematics, package / "bounds" / "analysis.py"])


def page() -> str:
    """The page as it should be today."""
    left, lines = kernel(), [_INTRODUCTION]
    whole, bare = (sum(numbers) for numbers in zip(*map(_counts, left), strict=True))
    lines.append(f"In all {len(left)} files, {whole:,} lines, {bare:,} of code.\n")
    for heading, places in PARTS.items():
        mine = [path for path in left if _name(path).startswith(places)]
        left = [path for path in left if path not in mine]
        lines += [f"## {heading}\n", *_table(mine), ""]
    folder = ROOT / "src" / "certus"
    lines += [_ASSEMBLED, *_table([folder / f"{name}.py" for name in (*ASSEMBLY, *DRAWN)])]
    return "\n".join(lines) + "\n"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT / "src" / "certus"))


def _counts(path: Path) -> tuple[int, int]:
    text = path.read_text(encoding="utf-8")
    return len(text.splitlines()), len(code(text).splitlines())


def _table(paths: list[Path]) -> list[str]:
    rows = ["| file | lines | code | what it is |", "|---|---|---|---|"]
    for path in paths:
        total, bare = _counts(path)
        rows.append(f"| `{_name(path)}` | {total} | {bare} | {_sentence(path)} |")
    return rows


def _sentence(path: Path) -> str:
    """The first paragraph of its docstring, on one line."""
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Written: {PAGE}")
