"""Changes of bytes, as by disks, networks, editors and users."""

from __future__ import annotations

import random

WORDS = (
    *(
        b"\0",
        b"\xff\xff\xff\xff",
        b"\xff" * 8,
        b"\x00" * 8,
        b"\x7f" + b"\xff" * 7,
        b"\x80\x04",
        b"PK\x03\x04",
    ),
    *(
        b"nan",
        b"inf",
        b"-1",
        b"1e400",
        b"1" + b"0" * 400,
        b"\x1b[31m",
        b"\r\n",
        b"\n",
        b",",
        b'"',
        b"'",
        b"{",
    ),
    *(
        b"}",
        b"[" * 2000,
        b"null",
        b"true",
        b'"false"',
        b"\xef\xbb\xbf",
        b"\xe9",
        b"\xed\xb0\x80",
        b"%s",
        b"../",
    ),
    *(b"#", b";", b"\t", b" ", b"9" * 30, b"1_0", b"_", b"\xd9\xa3", b"%!PS-Adobe-3.0 EPSF-3.0\n"),
)


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to three changes, most of them small."""
    for _ in range(rng.choices((1, 2, 3), (6, 2, 1))[0]):
        content = rng.choices(_CHANGES, _WEIGHTS)[0](rng, content)
    return content


def _place(rng: random.Random, content: bytes) -> int:
    """Anywhere, and at the beginning as often: that is where the meaning is."""
    last = max(len(content) - 1, 0)
    return rng.randint(0, min(last, 64)) if rng.random() < 0.5 else rng.randint(0, last)


def _flip(rng: random.Random, content: bytes) -> bytes:
    if not content:
        return b"\0"
    place = _place(rng, content)
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _replace(rng: random.Random, content: bytes) -> bytes:
    place, word = _place(rng, content), rng.choice(WORDS)
    return content[:place] + word + content[place + len(word) :]


def _insert(rng: random.Random, content: bytes) -> bytes:
    place = _place(rng, content)
    return content[:place] + rng.choice(WORDS) + content[place:]


def _cut(rng: random.Random, content: bytes) -> bytes:
    return content[: _place(rng, content)]


def _drop(rng: random.Random, content: bytes) -> bytes:
    place = _place(rng, content)
    return content[:place] + content[place + rng.choice((1, 2, 8, 100)) :]


def _double(rng: random.Random, content: bytes) -> bytes:
    place, size = _place(rng, content), rng.choice((1, 8, 64, 1000))
    return content[: place + size] + content[place:]


def _number(rng: random.Random, content: bytes) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(
        (0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, rng.getrandbits(8))
    )
    place = _place(rng, content)
    return content[:place] + value.to_bytes(size, rng.choice(("little", "big"))) + content[place + size :]


def _noise(rng: random.Random, content: bytes) -> bytes:
    place = _place(rng, content)
    return content[:place] + rng.randbytes(rng.choice((1, 16, 300))) + content[place + 16 :]


def _whole(rng: random.Random, content: bytes) -> bytes:
    """Another encoding, other ends of lines, twice, backwards, nothing, or noise."""
    text = content.decode("latin-1")
    return rng.choice(
        [
            text.encode("utf-16"),
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\r"),
            content + content,
            content[::-1],
            b"",
            b"\n",
            rng.randbytes(100),
            bytes(len(content)),
            b"\xef\xbb\xbf" + content,
        ]
    )


_CHANGES = (_flip, _replace, _insert, _cut, _drop, _double, _number, _noise, _whole)
_WEIGHTS = (4, 3, 3, 1, 2, 1, 3, 1, 1)
