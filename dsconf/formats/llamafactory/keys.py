"""The key table of LLaMA-Factory's config, generated from the model; it needs no pydantic to be read."""

from __future__ import annotations

from typing import Any

from dsconf.config.context import Context
from dsconf.config.tables import table_beside
from dsconf.document.node import Document


def load_keys() -> dict[str, Any]:
    """The root of the table: see `dsconf.formats.table` for its nodes."""
    return table_beside(__file__)


def table_for(document: Document | None, context: Context) -> dict[str, Any]:
    """The table as it holds for a file."""
    return load_keys()
