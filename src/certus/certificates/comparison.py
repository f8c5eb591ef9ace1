"""Where two certificates, or two tables of samples, differ.

Numbers are compared relative to their size: as many digits count for features of size 10⁻⁶ as for those of
size 1. On another number of threads, or with other instructions of the processor, sums are taken in another
order. Measured on certificates of five networks (MLPs of 512 and 256 units, a CNN, features of size 10⁻⁶, a
regression): all numbers agree to 10⁻¹⁵ of their size on 1 and 2 threads, and to 8·10⁻¹⁴ with and without AVX,
where the farthest is the certified cost of an error at a sample next to the boundary. 10⁻⁹ leaves room for
larger networks, and for samples nearer to it. Zero, infinity and whole numbers are compared exactly.
"""

from __future__ import annotations

import csv
import io
from typing import Any

TOLERANCE = 1e-9


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two JSON documents differ: fractions by more than 10⁻⁹ of their size, anything else at all.

    >>> differences({"rho": [1.0, 1e-6]}, {"rho": [1.0 + 1e-12, 1.1e-6]})
    ['rho[1]: 1e-06, now 1.1e-06']
    """
    if isinstance(first, dict) and isinstance(second, dict):
        missing = [
            f"{path}.{name}".removeprefix(".") + f": {'gone' if name in first else 'new'}"
            for name in sorted(first.keys() ^ second.keys())
        ]
        return missing + [
            found
            for name in sorted(first.keys() & second.keys())
            for found in differences(first[name], second[name], f"{path}.{name}")
        ]
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return [f"{path.removeprefix('.')}: {len(first)} entries, now {len(second)}"]
        return [
            found
            for index, (a, b) in enumerate(zip(first, second, strict=True))
            for found in differences(a, b, f"{path}[{index}]")
        ]
    return [] if _same(first, second) else [f"{path.removeprefix('.')}: {first}, now {second}"]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second  # True is no 1
    if isinstance(first, float) and isinstance(second, float) and first != second:
        return abs(first - second) <= TOLERANCE * max(abs(first), abs(second)) < float("inf")
    return bool(first == second)


def table_differences(first: str, second: str) -> list[str]:
    """The same for two tables of samples."""

    def rows(text: str) -> list[list[object]]:
        return [[_number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]

    return differences(rows(first), rows(second), "samples.csv")


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell
