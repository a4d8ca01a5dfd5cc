"""The key table of Accelerate's config, generated from the models; it needs no pydantic to be read."""

from __future__ import annotations

from functools import cache
from typing import Any

from dsconf.config.context import Context
from dsconf.config.tables import table_beside
from dsconf.document.node import Document
from dsconf.formats.accelerate.live import conditions
from dsconf.formats.pruning import pruned

NEWEST = "1.15.0"
"""The Accelerate that the table describes."""
_ANY = Context()


def load_keys() -> dict[str, Any]:
    """The root of the table: see `dsconf.formats.table` for its nodes."""
    return table_beside(__file__)


def table_for(document: Document | None, context: Context = _ANY) -> dict[str, Any]:
    """The table as it holds for a file: a value that nobody will read in this file can't be wrong.

    It has the same paths as `load_keys()`.
    """
    return load_keys() if document is None else _table(conditions(document.root.plain()))


@cache
def _table(hold: frozenset[str]) -> dict[str, Any]:
    table = pruned(load_keys(), hold)
    # SageMaker has many keys of its own.
    return {**table, "unknown": "ignored"} if "sagemaker" in hold else table
