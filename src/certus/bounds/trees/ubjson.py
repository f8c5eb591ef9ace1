"""A reader of Universal Binary JSON, the format of XGBoost's .ubj files."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.errors import UnreadableModelError

_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_CONSTANTS = {b"Z": None, b"T": True, b"F": False}
_DEEPEST = 64


class _Reader:
    """A position in bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.place + count > len(self.content):
            raise UnreadableModelError("the UBJSON file ends early, or is damaged")
        self.place += count
        return self.content[self.place - count : self.place]

    def peek(self) -> bytes:
        return self.content[self.place : self.place + 1]

    def length(self) -> int:
        count = self.value(self.take(1), 0)
        if not isinstance(count, int) or isinstance(count, bool):
            raise UnreadableModelError("the UBJSON file has a length that is not a whole number")
        return count

    def text(self) -> str:
        return self.take(self.length()).decode()

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > _DEEPEST:
            raise UnreadableModelError("the UBJSON file is nested too deeply")
        if marker in _NUMBERS:
            kind = np.dtype(_NUMBERS[marker])
            return np.frombuffer(self.take(kind.itemsize), kind)[0].item()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker == b"S":
            return self.text()
        if marker == b"C":
            return self.take(1).decode()
        if marker == b"[":
            return self.array(depth + 1)
        if marker == b"{":
            return self.mapping(depth + 1)
        raise UnreadableModelError(f"the UBJSON file has an unknown marker {marker!r}")

    def header(self) -> tuple[bytes | None, int | None]:
        """The optional type and number of entries of a container."""
        kind = None
        if self.peek() == b"$":
            self.take(1)
            kind = self.take(1)
        if self.peek() != b"#":
            if kind is not None:
                raise UnreadableModelError("the UBJSON file has a typed container without a length")
            return None, None
        self.take(1)
        count = self.length()
        if not 0 <= count <= len(self.content):
            raise UnreadableModelError("the UBJSON file has a length beyond its own")
        return kind, count

    def array(self, depth: int) -> Any:
        kind, count = self.header()
        if kind in _NUMBERS and count is not None:
            numbers = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(numbers.itemsize * count), numbers).tolist()
        entries: list[Any] = []
        while len(entries) != count:
            marker = kind or self.take(1)
            if marker == b"]" and count is None:
                break
            entries.append(self.value(marker, depth))
        return entries

    def mapping(self, depth: int) -> dict[str, Any]:
        kind, count = self.header()
        entries: dict[str, Any] = {}
        read = 0
        while read != count:
            if count is None and self.peek() == b"}":
                self.take(1)
                break
            name = self.text()
            entries[name] = self.value(kind or self.take(1), depth)
            read += 1
        return entries


def read_ubjson(content: bytes) -> Any:
    """Return the value that the bytes encode; raise ``UnreadableModelError`` if they are damaged."""
    reader = _Reader(content)
    try:
        value = reader.value(reader.take(1), 0)
    except UnicodeDecodeError as reason:
        raise UnreadableModelError(f"the UBJSON file is damaged: {reason}") from None
    if reader.place != len(content):
        raise UnreadableModelError("the UBJSON file goes on after its end")
    return value
