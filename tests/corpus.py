"""The public configs that tests may read, where $DSCONF_CORPUS names a folder of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CORPUS = os.environ.get("DSCONF_CORPUS")
needs_corpus = pytest.mark.skipif(CORPUS is None, reason="DSCONF_CORPUS is not set")


def corpus_json() -> list[Path]:
    """Every JSON file of the corpus, an empty list without one."""
    return sorted(Path(CORPUS).glob("ds_json*/*.json")) if CORPUS else []
