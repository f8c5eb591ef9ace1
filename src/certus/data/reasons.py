"""Why a file cannot be read, in words for somebody who knows which file is meant."""

from __future__ import annotations


def why_not(problem: Exception) -> str:
    """What an error says, without its number and path.

    >>> why_not(PermissionError(13, "Permission denied", "data.csv"))
    'Permission denied'
    >>> why_not(FileNotFoundError(2, "No such file or directory", "data.csv"))
    'no file at that path'
    """
    if isinstance(problem, FileNotFoundError):
        return "no file at that path"
    if isinstance(problem, IsADirectoryError):
        return "a folder"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
