"""``certify`` has the options of the functions that it chooses from, each with its type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from certus.certificates.certify_options import NetworkOptions
from certus.certificates.deterministic import certify_network


@pytest.mark.parametrize(("options", "function"), [(NetworkOptions, certify_network)])
def test_every_option_is_listed_with_its_type(options: type, function: Callable[..., Any]) -> None:
    said = {"model", "data", "rho", "progress"}  # by ``certify`` itself
    taken = [name for name in inspect.signature(function).parameters if name not in said]
    hints = get_type_hints(function)
    assert get_type_hints(options) == {name: hints[name] for name in taken}
