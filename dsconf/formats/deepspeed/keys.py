"""The key table of DeepSpeed's configuration, generated from the models; it needs no pydantic to be read."""

from __future__ import annotations

from functools import cache
from typing import Any

from dsconf.config.context import Context
from dsconf.config.tables import table_beside
from dsconf.document.node import Document

NEWEST = "0.19.8"
"""The DeepSpeed that the table describes."""


@cache
def load_keys(version: str | None = None) -> dict[str, Any]:
    """The root of the table: see `dsconf.formats.table` for its nodes.

    `version` is an older one, of the history; None stands for the newest.
    """
    if version is not None:
        from dsconf.formats.deepspeed.history import keys_of  # only an older target needs it

        return keys_of(load_keys(), version)
    return table_beside(__file__)


def table_for(document: Document | None, context: Context) -> dict[str, Any]:
    """The table as it holds for the DeepSpeed that will run."""
    return load_keys(context.deepspeed_version)


def came_with(path: str, version: str | None) -> str | None:
    """The first of the read versions that has the key which the target `version` does not have; None for none."""
    if version is None:
        return None
    from dsconf.formats.deepspeed.history import came_with  # only an older target needs it

    return came_with(load_keys(), path)
