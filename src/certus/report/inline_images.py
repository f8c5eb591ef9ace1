"""Images as pictures inside a page: PNG without any library, in a data: address."""

from __future__ import annotations

import base64
import struct
import zlib

from torch import Tensor


def png(image: Tensor) -> bytes:
    """A (channels, height, width) image with values in [0, 1], grey or in colours, as a PNG file.

    >>> import torch
    >>> png(torch.zeros(1, 2, 2))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    colours = image.shape[0] == 3
    pixels = image if colours else image[:1]
    levels = (pixels.detach().double().clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
    height, width = int(levels.shape[0]), int(levels.shape[1])
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colours else 0, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows, 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_address(image: Tensor) -> str:
    """What the src of an <img> may be."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
