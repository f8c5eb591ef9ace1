"""The public functions spell their options out: ``help`` and completion show all of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import certus


@pytest.mark.parametrize("function", [certus.certify, certus.certify_smoothed], ids=["certify", "smoothed"])
def test_every_option_has_a_name_a_type_and_a_description(function: Callable[..., Any]) -> None:
    signature = inspect.signature(function)
    assert signature.return_annotation in ("Certificate", "SmoothedCertificate")
    described = re.findall(r"^    ([a-z_, ]+): ", inspect.getdoc(function) or "", re.M)
    names = {name.strip() for line in described for name in line.split(",")}
    for name, parameter in signature.parameters.items():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        assert parameter.annotation is not parameter.empty
        assert name in names, name
