"""The key table of TrainingArguments, generated from the model; it needs no pydantic to be read."""

from __future__ import annotations

from functools import cache
from typing import Any

import dsconf.config.trainer_values  # noqa: F401  # how its values are read
from dsconf.config.context import Context
from dsconf.config.tables import table_beside
from dsconf.document.node import Document
from dsconf.formats.pruning import pruned
from dsconf.formats.trainer.live import conditions

_ANY = Context()


def load_keys() -> dict[str, Any]:
    """The root of the table: see `dsconf.formats.table` for its nodes."""
    return table_beside(__file__)


def table_for(document: Document | None, context: Context = _ANY) -> dict[str, Any]:
    """The table as it holds for a file: a value that nobody will read in this file can't be wrong."""
    return load_keys() if document is None else _table(conditions(document.root.plain()))


@cache
def _table(hold: frozenset[str]) -> dict[str, Any]:
    return pruned(load_keys(), hold)
