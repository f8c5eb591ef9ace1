"""Metadata that a package index shows: links, addresses, versions."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import certus
from tools.release_links import ROOT, rewrite

REPOSITORY = "https://host/owner/certus"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_link_of_a_release_leads_into_the_repository(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    rewrite(tmp_path, REPOSITORY, "v1")
    page = (tmp_path / "README.md").read_text()
    targets = re.findall(r'\]\(([^)]+)\)|src="([^"]+)"', page)
    paths = [target or source for target, source in targets]
    assert len(paths) > 10
    for path in paths:
        assert path.startswith("https://"), path
        inside = re.sub(r"^.*/(?:blob|raw)/v1/|#.*$", "", path)
        assert not path.startswith(REPOSITORY) or (ROOT / inside).exists(), path
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Source"] == REPOSITORY
    assert set(PROJECT["urls"]) < set(urls)


def test_the_workflow_runs_the_python_versions_that_are_named() -> None:
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if " :: 3." in line}
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/test.yml").read_text())
    assert matrix is not None
    assert set(re.findall(r'"([\d.]+)"', matrix[1])) == named


def test_citations_name_this_version() -> None:
    assert f"\nversion: {certus.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{certus.__version__}}}" in re.sub(" +", " ", (ROOT / "docs/releases.md").read_text())
