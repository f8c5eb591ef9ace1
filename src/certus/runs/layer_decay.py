"""Weight decay as it is typed: one number for all weights, or LAYER=VALUE for each layer that is named."""

from __future__ import annotations

from collections.abc import Sequence

from certus.errors import require, require_number

_RULE = "be one number, or LAYER=VALUE for each layer"


def typed_decay(texts: Sequence[str]) -> float | str:
    """What was typed, once or several times, as a setting.

    >>> typed_decay(["0.1"]), typed_decay(["0=0.1", "2=0.01"])
    (0.1, '0=0.1,2=0.01')
    """
    try:
        (number,) = (float(text) for text in texts)
    except ValueError:  # several, or no number
        return ",".join(texts)
    return number


def decay_of_layers(setting: float | str) -> float | dict[str, float]:
    """A setting as ``fit`` takes it, checked.

    >>> decay_of_layers("0=0.1,features.3=0.01")
    {'0': 0.1, 'features.3': 0.01}
    """
    if not isinstance(setting, str):
        return require_number("weight_decay", setting, zero=True)
    amounts: dict[str, float] = {}
    for entry in setting.split(","):
        layer, equals, value = entry.strip().partition("=")
        require(bool(layer and equals), "weight_decay", _RULE, repr(setting))
        require(layer not in amounts, "weight_decay", "name each layer once", repr(setting))
        try:
            amounts[layer] = float(value)
        except ValueError:
            require(False, "weight_decay", _RULE, repr(setting))
        require_number("weight_decay", amounts[layer], zero=True)
    return amounts
