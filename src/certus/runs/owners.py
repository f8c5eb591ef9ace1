"""What a folder or a file belongs to, so that no command writes over the results of another."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.errors import ArgumentError
from certus.runs.creation import MODEL, RESULT, SETTINGS, SPLIT
from certus.runs.recorder import CHECKPOINT, METRICS
from certus.storage.files import RunError, read_json
from certus.storage.write import LOCK, pending


@dataclass(frozen=True)
class Owner:
    """A kind of folder that certus writes.

    Attributes:
        words: what it holds.
        names: which files are its own, as a pattern.
    """

    words: str
    names: re.Pattern[str]


def _owner(words: str, *names: str) -> Owner:
    return Owner(words, re.compile("|".join([re.escape(LOCK), *names])))


RUN = _owner("a run", *map(re.escape, (SETTINGS, SPLIT, MODEL, RESULT, CHECKPOINT, METRICS)))
CERTIFICATE_FOLDER, OWN_LABELS_FOLDER = "certificate", "certificate-predicted"
"""Folders in a run: certificates of the labels of its data, and of the network's own predictions."""
CERTIFICATES = ("certificate.json", "smoothing.json")
"""Either may be there without the other: the second is by noise."""
CERTIFICATE = _owner(
    "a certificate",
    *map(re.escape, CERTIFICATES),
    r"(certificate|smoothing)\.png",
    r"samples\.csv",
    "unfinished",
)


def owner_of(folder: Path) -> Owner | None:
    """Whose folder it is; None for one that certus did not write.

    A writer that was killed in the end has left its last file, by which it is known, among those to be put
    into place.
    """
    return _known(folder) or _known(pending(folder))


def _known(folder: Path) -> Owner | None:
    if (folder / SETTINGS).exists():
        return RUN
    if any((folder / name).exists() for name in CERTIFICATES) or (folder / "unfinished").is_dir():
        return CERTIFICATE
    return None


def require_folder_of(owner: Owner, option: str, folder: Path) -> None:
    """Raise ``ArgumentError`` if the folder is another's, or has files that would be replaced."""
    found = owner_of(folder)
    if found is owner or not folder.is_dir():
        return
    rule = f"`{option}` must be a folder of its own; got {folder}"
    if found is not None:
        raise ArgumentError(f"{rule}, which holds {found.words}.")
    names = sorted(name for name in os.listdir(folder) if name != LOCK and owner.names.fullmatch(name))
    if names:
        raise ArgumentError(f"{rule}, whose {names[0]} is not of {owner.words}.")


def require_file_of_nobody(option: str, file: Path) -> None:
    """Raise ``ArgumentError`` for a file that belongs to a run or a certificate."""
    owner = owner_of(file.parent)
    if owner is not None and owner.names.fullmatch(file.name):
        rule = f"`{option}` must be a file of its own"
        raise ArgumentError(f"{rule}; got {file}, which belongs to {owner.words}.")


def certified_run(file: Path) -> tuple[str, str] | None:
    """The run that a certificate is about, and the sha256 of its weights; None if unknown."""
    try:
        about = _content(file)["about"]
        return str(about["run"]), str(about["digests"]["weights"])
    except (KeyError, TypeError):
        return None


def certified_labels(file: Path) -> str | None:
    """Whose labels a certificate of a run is about, "given" or "predicted"; None if unknown."""
    try:
        return "predicted" if _content(file)["about"]["settings"]["predicted"] is True else "given"
    except (KeyError, TypeError):
        return None


def _content(file: Path) -> Any:
    try:
        return read_json(file)
    except RunError:
        return None
