"""The digest of the code, which certificates and cached dual values carry."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from certus.storage import files as sources
from tools.sources import code


def test_every_byte_and_name_of_a_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "certus"
    shutil.copytree(Path(sources.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    digest = sources.code_digest.__wrapped__
    digests = {digest()}
    monkeypatch.setattr(sources, "__file__", str(package / "storage" / "files.py"))
    digests.add(digest())
    assert len(digests) == 1  # where the package is does not count
    file = package / "kernel" / "norms.py"
    file.write_bytes(file.read_bytes() + b" ")
    digests.add(digest())
    file.rename(file.with_name("other.py"))
    digests.add(digest())
    assert len(digests) == 3


def test_files_in_the_code_digest() -> None:
    text = '''"""Words."""

VALUE = 1  # a remark
"""More words."""


def double(x: str) -> str:
    """Twice."""
    if x:
        return x + x  # "#" in a remark
    return "# no remark"
'''
    wanted = ["VALUE = 1", "def double(x: str) -> str:", "    if x:", "        return x + x"]
    assert code(text).splitlines() == [*wanted, '    return "# no remark"']
    other = text.replace('    return "', '        return "')  # indentation alone
    assert code(other) != code(text)
