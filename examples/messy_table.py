"""Writes a table as people have them: words, dates, gaps, an identifier, money, and a rare class.

python examples/messy_table.py customers.csv later.csv
"""

from __future__ import annotations

import csv
import datetime
import random
import sys
from pathlib import Path

HEADER = ["customer_id", "joined", "age", "town", "income", "discount", "country", "left"]


def customers(
    count: int, seed: int, *, older: float = 0.0, towns: tuple[str, ...] = ("Bern", "Chur")
) -> list[list[str]]:
    """Rows of cells; customers who are young and pay little leave, about one in seven.

    Args:
        older: years by which everybody is older.
    """
    draw = random.Random(seed)
    rows = []
    for at in range(count):
        age, income = draw.gauss(45 + older, 12), draw.lognormvariate(10.5, 0.4)
        joined = datetime.date(2020, 1, 1) + datetime.timedelta(days=draw.randrange(1200))
        gone = age / 12 + income / 20_000 + draw.gauss(0, 0.7) < 4.0
        rows.append(
            [
                str(100_000 + 7 * at),
                joined.isoformat(),
                "" if draw.random() < 0.06 else f"{age:.0f}",
                "NA" if draw.random() < 0.03 else draw.choice(towns),
                f"CHF {income:,.0f}".replace(",", "'"),
                f"{draw.choice([0, 5, 10])}%",
                "CH",
                "yes" if gone else "no",
            ]
        )
    return rows


def write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([HEADER, *rows])


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(Path(sys.argv[1]), customers(400, seed=0))
    write(Path(sys.argv[2]), customers(300, seed=1, older=4, towns=("Bern", "Chur", "Genf")))


if __name__ == "__main__":
    main()
