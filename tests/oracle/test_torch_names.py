"""The names that parts of emitted modules use exist in the real torch."""

from __future__ import annotations

import importlib.util
import inspect
import json
import pkgutil

import pytest

from dsconf.formats.fsdp2.torch_names import DATA

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra verify"),
]

NAMES = json.loads(DATA.read_text(encoding="utf-8"))["names"]


@pytest.mark.parametrize("name", NAMES)
def test_the_newest_torch_has_it(name: str) -> None:
    dotted, _, argument = name.rstrip(")").partition("(")
    found = pkgutil.resolve_name(dotted)
    if argument:
        parameters = inspect.signature(found).parameters
        open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        assert argument in parameters or open_ended
