"""Strict reading of untrusted files, and the types of JSON entries.

Devices, pipes and sockets are refused, since they may block or never end, and so are files above a size
limit.
JSON is refused if a key is repeated, a number is not finite, or a string holds a NUL. ``convert`` checks
parsed JSON against a dataclass or a ``msgspec`` struct.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import stat
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, get_type_hints

import msgspec

from certus.errors import LARGEST, ArgumentError, CertusError

T = TypeVar("T")
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Confidence = Annotated[float, msgspec.Meta(ge=0.5, lt=1)]
"""Types of entries with their ranges, as ``certus.errors`` requires them of arguments."""

MOST_JSON = 2**28
MOST_DEPTH = 64


class RunError(CertusError):
    """A run directory cannot be written, read or trusted; the message says which file and why."""


class CorruptFileError(RunError):
    """A file was damaged or altered since certus wrote it."""


def read_json(path: Path) -> Any:
    """Read a JSON file strictly; see ``parse_json``."""
    try:
        return parse_json(read_regular(path, MOST_JSON).decode())
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except CorruptFileError as reason:
        raise CorruptFileError(f"{path} is corrupt: {reason}") from None
    except ValueError:
        raise RunError(f"{path} is corrupt: it is not a JSON file.") from None


def parse_json(text: str) -> Any:
    """Parse JSON; refuse NUL characters, numbers that are not finite, and repeated keys, on which parsers
    disagree.

    >>> parse_json('{"rho": 0.1, "rho": 0.2}')
    Traceback (most recent call last):
    certus.storage.files.CorruptFileError: the key "rho" occurs twice.
    """
    try:
        content = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
    except RecursionError:
        raise CorruptFileError("it is nested too deeply.") from None
    _check_values([content])
    return content


def plain_json(value: Any) -> Any:
    """Return a value as parsed JSON: dataclasses as objects, tuples and tensors as lists, and ∞ and NaN as
    null.

    >>> plain_json({"rhos": (0.1, math.inf)})
    {'rhos': [0.1, None]}
    """
    builtins = msgspec.to_builtins(value, enc_hook=_builtin)
    return json.loads(json.dumps(builtins), parse_constant=lambda name: None)


def _builtin(value: Any) -> Any:
    """Return the text of a subclass of ``str``, such as torch's version; a tensor or an array as a list."""
    return str(value) if isinstance(value, str) else value.tolist()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise CorruptFileError(f'the key "{name}" occurs twice.')
        entries[name] = value
    return entries


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise CorruptFileError(f"{text[:20]} is not a finite number.")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(number := int(text)) >= 2**63:
        raise CorruptFileError(f"{text[:20]}… is too large a number.")
    return number


def _check_values(entries: Iterable[Any], depth: int = 1) -> None:
    """Refuse deep nesting, on which later readers may recurse, and NUL characters."""
    for entry in entries:
        if isinstance(entry, dict | list | str) and depth > MOST_DEPTH:
            raise CorruptFileError("it is nested too deeply.")
        if isinstance(entry, str) and "\0" in entry:
            raise CorruptFileError("it has text with a NUL character.")
        if isinstance(entry, dict | list):
            _check_values(entry.values() if isinstance(entry, dict) else entry, depth + 1)


def convert(content: Any, kind: type[T]) -> T:
    """Return parsed JSON as a dataclass or a struct; raise ``CorruptFileError`` naming the first wrong entry.
    Strict: true is not 1, "1" is not a number, and unknown entries are refused."""
    try:
        if not is_dataclass(kind):
            return msgspec.convert(content, kind)
        msgspec.convert(content, _schema(kind))
        return kind(**{key: tuple(item) if isinstance(item, list) else item for key, item in content.items()})
    except msgspec.ValidationError as reason:
        raise CorruptFileError(_readable(reason)) from None
    except ArgumentError as reason:
        raise CorruptFileError(str(reason)) from None


def check_types(record: Any) -> None:
    """Raise ``ArgumentError`` unless every field of a dataclass has the type of its annotation."""
    try:
        msgspec.convert(vars(record), _schema(record.__class__))
    except msgspec.ValidationError as reason:
        raise ArgumentError(_readable(reason)) from None


@cache
def _schema(kind: type[Any]) -> type[msgspec.Struct]:
    """A struct with the fields of a dataclass: unlike dataclasses, structs can forbid unknown entries."""
    hints = get_type_hints(kind)
    defaults = {
        each.name: msgspec.NODEFAULT if each.default is MISSING else each.default for each in fields(kind)
    }
    entries = [(name, hints[name], msgspec.field(default=default)) for name, default in defaults.items()]
    return msgspec.defstruct(kind.__name__, entries, forbid_unknown_fields=True)


def _readable(reason: msgspec.ValidationError) -> str:
    """Rewrite a message of msgspec, "Expected `int`, got `str` - at `$.epochs`", with the entry first."""
    message, _, place = str(reason).partition(" - at `$")
    name = place.rstrip("`").lstrip(".")
    return f"`{name}` is wrong: {message}." if name else f"{message}."


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file of at most ``most`` bytes for reading; raise ``OSError`` for anything else."""
    try:
        # Without waiting for the writer of a pipe.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL byte, or half of a surrogate pair
        raise OSError(errno.EINVAL, "its name is not valid", str(path)) from None
    about, code, message = os.fstat(handle), errno.EINVAL, ""
    if stat.S_ISDIR(about.st_mode):
        code, message = errno.EISDIR, os.strerror(errno.EISDIR)
    elif not stat.S_ISREG(about.st_mode):
        message = "it is a device, a pipe or a socket, not a regular file"
    elif most is not None and about.st_size > most:
        code, message = errno.EFBIG, f"it has {about.st_size} bytes, and at most {most} are read"
    if message:
        os.close(handle)
        raise OSError(code, message, str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of limited size; raise ``OSError`` for anything else."""
    with open_regular(path, most) as stream:
        content = read_up_to(stream, most + 1)
    if len(content) > most:  # a file of the system, whose size is said to be 0, or one that grows
        raise OSError(errno.EFBIG, f"it has more than the {most} bytes that are read", str(path))
    return content


def read_up_to(stream: BinaryIO | io.BufferedIOBase, count: int) -> bytes:
    """Read at most ``count`` bytes, and allocate memory only for bytes that exist."""
    parts = []
    while count > 0 and (part := stream.read(min(count, 2**20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


@cache
def code_digest() -> str:
    """SHA-256 over the names and contents of all source files of certus, shortened to 16 digits, for
    certificates and caches."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
