"""The layers of the package: a part imports only what stands above it in this list."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "certus"

LAYERS: list[set[str]] = [
    {
        "bars",
        "evidence",
        "errors",
        "decimals",
        "lazily",
        "lookable",
        "outward",
        "printable",
        "spoken",
        "table_options",
    },
    {
        "batches",
        "split",
        "samples",
        "feature_names",
        "norms",
        "losses",
        "image_slopes",
        "modes",
        "row_encoding",
        "subsets",
    },
    {"domains", "storage"},
    {"costs", "layers", "readers"},
    {"checks", "perturbers"},
    {"surrogate", "smoothness"},
    {"attacks"},
    {"certificates"},
    {"data"},
    {"models"},
    {"training"},
    {"runs"},
    {"sklearn"},
    {"texts"},
    {"figures"},
    {"report"},
    {"looks"},
    {"mdp"},
    {"cli"},
]
"""From the vocabulary to the command line. Parts of one layer do not import each other; only the small files
of the first two may."""


def part_of(module: str) -> str | None:
    """``certus.costs.base`` → ``costs``; None for the package itself and for others."""
    names = module.split(".")
    return names[1] if names[0] == "certus" and len(names) > 1 else None


def imports(path: Path) -> set[str]:
    """Parts that a file imports, inside functions and for types too."""
    found: set[str | None] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {part_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "certus":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(part_of(node.module))
    return {part for part in found if part is not None and part != "__version__"}


FILES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upwards(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    place = {part: index for index, layer in enumerate(LAYERS) for part in layer}
    assert own in place, f"{own} has no layer yet: put it into LAYERS and into docs/architecture.md"
    for part in imports(path) - {own}:
        assert part in place, f"{path.name} imports certus.{part}, which has no layer"
        assert place[part] < place[own] or (place[part] == place[own] and place[own] <= 1), (
            f"{own} imports {part}, which is not above it"
        )


REPOSITORY = {"studies", "tools", "tests", "benchmarks", "examples"}
"""Packages of the repository, which the wheel does not have."""


def test_nothing_installed_imports_the_repository() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {module.split(".")[0] for module in modules} & REPOSITORY, path


def test_no_file_hides_an_import() -> None:
    """Modules are not fetched by name to get around a circle; the package itself loads its parts lazily."""
    hidden = [path for path in FILES if "import_module(" in path.read_text()]
    assert {path.name for path in hidden} == {
        "adapters.py",
        "lazily.py",
    }  # other libraries, if they are there


BARRED = {
    "surrogate",
    "attacks",
    "training",
    "runs",
    "figures",
    "report",
    "models",
    "data",
    "cli",
    "mdp",
    "perturbers",
}


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name in ("proven", "smoothness")])
def test_the_kernel_stands_alone(path: Path) -> None:
    """No attack, no ascent, no run, no picture: a reviewer who distrusts everything else reads it alone."""
    assert not imports(path) & BARRED
    text = path.read_text()
    if path.parent.name == "proven":
        assert "certus.certificates." not in text.replace("certus.certificates.proven", "")


def test_the_page_shows_the_layers() -> None:
    """docs/architecture.md names every part, in the order of the layers."""
    page = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    picture = page.split("```")[1].split()
    for above, below in itertools.pairwise(LAYERS):
        for part in above:
            assert part in picture, f"docs/architecture.md does not show {part}"
            after = [picture.index(other) for other in below if other in picture]
            assert all(picture.index(part) < place for place in after), f"{part} is not above {below}"


def test_the_page_names_files_that_exist() -> None:
    root = SOURCE.parent.parent
    named = re.findall(r"`([\w/]+\.py)`", (root / "docs" / "architecture.md").read_text())
    assert len(named) > 30
    assert [name for name in named if not (SOURCE / name).exists() and not (root / name).exists()] == []
