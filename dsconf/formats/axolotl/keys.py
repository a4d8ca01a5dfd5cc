"""The key table of Axolotl's config, generated from the model; it needs no pydantic to be read."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import dsconf.config.trainer_values  # noqa: F401  # how its values are read
from dsconf.config.context import Context
from dsconf.document.node import Document

KEYS_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keys.json")  # noqa: PTH100, PTH118, PTH120


@cache
def load_keys() -> dict[str, Any]:
    """The root of the table: see `dsconf.formats.table` for its nodes."""
    with open(KEYS_FILE, encoding="utf-8") as handle:  # noqa: PTH123
        table: dict[str, Any] = json.load(handle)
    return table


def table_for(document: Document | None, context: Context) -> dict[str, Any]:
    """The table as it holds for a file."""
    return load_keys()
