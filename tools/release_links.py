"""Make the links of README.md absolute, and name the repository in the package's metadata.

    python -m tools.release_links https://host/owner/certus v0.1.0

A package index shows README.md outside of the repository, where relative links lead nowhere. The address of
the repository is known where a release is built, so the release workflow runs this before it builds.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def absolute(text: str, repository: str, tag: str) -> str:
    """Point the relative links and pictures of a page in the repository's root at the repository.

    >>> absolute("[guide](docs/index.md#a), [web](https://a.b)", "https://host/me/certus", "v1")
    '[guide](https://host/me/certus/blob/v1/docs/index.md#a), [web](https://a.b)'
    >>> absolute('<img src="results/a.png">', "https://host/me/certus", "v1")
    '<img src="https://host/me/certus/raw/v1/results/a.png">'
    """
    text = re.sub(r'(src=")(?!https?:)', rf"\g<1>{repository}/raw/{tag}/", text)
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/{tag}/", text)


def with_addresses(metadata: str, repository: str, tag: str) -> str:
    """Add the addresses of source, documentation, changelog and issues to ``[project.urls]``."""
    addresses = {
        "Source": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in addresses.items())
    return metadata.replace("[project.urls]\n", f"[project.urls]\n{lines}")


def rewrite(root: Path, repository: str, tag: str) -> None:
    """Rewrite README.md and pyproject.toml of a checkout."""
    for name, change in (("README.md", absolute), ("pyproject.toml", with_addresses)):
        path = root / name
        path.write_text(change(path.read_text(), repository, tag))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("REPOSITORY and TAG must be given: python -m tools.release_links REPOSITORY TAG")
    rewrite(ROOT, *sys.argv[1:])
