"""run.json: what a run is, with a digest of its own and of the split.

The digests find damage, and edits by hand. They find no forgery: whoever writes a new run.json can write new
digests, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from certus.runs.kinds import is_digest, is_kind
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.tensors import digest
from certus.storage.write import SEAL, check_seal, seal, unsealed

RUN_VERSION = 3
SEALED = 3
_READ = (1, 2, RUN_VERSION)
"""1 had another name for a setting (see ``settings_of``); 1 and 2 have no digests."""


def _or_none(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or holds(value)


def _digests(value: object) -> bool:
    return isinstance(value, dict) and all(is_digest(one) for one in value.values())


def _words(value: object) -> bool:
    return isinstance(value, list) and all(is_kind(one, str) for one in value)


_FIELDS: dict[str, Callable[[object], bool]] = {
    "certus_version": lambda value: is_kind(value, str),
    "torch_version": lambda value: is_kind(value, str),
    "origin": lambda value: value in ("trained", "imported"),
    "settings": lambda value: isinstance(value, dict),
    "data_sha256": is_digest,
    "model_sha256": _or_none(is_digest),
    "model_imports": _or_none(_digests),
    "model_uncovered": _or_none(_words),
    "criterion": lambda value: isinstance(value, dict),
    "cost": lambda value: isinstance(value, dict),
    "domain": lambda value: isinstance(value, dict),
    "split_sha256": _or_none(is_digest),
}
_NEW = ("origin", "model_imports", "model_uncovered", "split_sha256")  # which older versions may lack


def describe_run(settings: Mapping[str, Any], rows: Mapping[str, Tensor]) -> dict[str, Any]:
    """The content of run.json."""
    return seal({"schema_version": RUN_VERSION, **settings, "split_sha256": digest(dict(rows))})


def read_run(path: Path) -> dict[str, Any]:
    """The content of a run.json, checked: its digest, and the kind of every entry."""
    about = read_json(path)
    if not isinstance(about, dict):
        raise DamageError(f"{path} is corrupt: it does not describe a run.")
    version = about.get("schema_version")
    if not is_kind(version, int) or version not in _READ:
        raise RunError(
            f"{path.parent} has schema version {version!r}; this version of certus reads "
            f"{', '.join(map(str, _READ[:-1]))} and {_READ[-1]}."
        )
    if version >= SEALED:
        check_seal(about, path)
    elif SEAL in about:
        raise DamageError(f"{path} is corrupt: schema version {version} has no {SEAL}.")
    else:
        about = dict.fromkeys(_NEW) | {"origin": "trained"} | about
    missing = _FIELDS.keys() - about.keys()
    if missing:
        raise DamageError(f"{path.parent} is corrupt: run.json lacks {', '.join(sorted(missing))}.")
    for name, holds in _FIELDS.items():
        if not holds(about[name]):
            raise DamageError(f"{path} is corrupt: {name} is {f'{about[name]!r}'[:80]}.")
    return unsealed(about)
