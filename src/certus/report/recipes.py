"""The commands that make a run and its certificate again."""

from __future__ import annotations

import shlex
from dataclasses import MISSING, fields
from typing import Any

from certus.runs.certification import CertifySettings
from certus.runs.settings import FLAGS, Settings


def train_command(settings: Settings, path: str, *, imported: bool) -> str:
    """``certus train …`` with all that is not a default."""
    if imported:
        given = ["certus", "import", "--weights", "WEIGHTS", "--data", settings.data]
        return shlex.join(
            [*given, "--model", settings.model, *_flags(settings, {"method", "folder"}), "-o", path]
        )
    words = ["certus", "train", settings.data, "--model", settings.model]
    return shlex.join([*words, *_flags(settings, {"folder"}), "-o", path])


def certify_command(asked: dict[str, Any], path: str) -> str:
    """``certus certify …`` from the settings in a certificate."""
    return shlex.join(["certus", "certify", path, *_flags(CertifySettings.from_json(asked), set())])


def _flags(settings: Settings | CertifySettings, left_out: set[str]) -> list[str]:
    words: list[str] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.default is MISSING or value == field.default or field.name in left_out:
            continue
        name = {"gammas": "gamma"}.get(field.name, field.name)
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag, str(one)]
    return words
