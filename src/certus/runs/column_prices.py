"""What moving some columns of a table costs, as it is typed: ``town=3,age=inf``."""

from __future__ import annotations

from certus.errors import require
from certus.table_options import listed_names


def column_prices(text: str) -> dict[str, float]:
    """Column → price, inf for one that is frozen.

    >>> column_prices("town=3, age=inf")
    {'town': 3.0, 'age': inf}
    """
    found: dict[str, float] = {}
    for part in listed_names(text):
        name, equals, number = part.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            equals, price = "", 0.0
        rule = "be COLUMN=PRICE, several separated by commas"
        require(equals != "" and name != "", "price", rule, repr(text))
        require(price > 0, "price", "be positive, inf to freeze", repr(part))
        require(name not in found, "price", "name each column once", repr(text))
        found[name] = price
    return found
