"""The public configs that tests may read, where $DSCONF_CORPUS names a folder of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CORPUS = os.environ.get("DSCONF_CORPUS")
needs_corpus = pytest.mark.skipif(CORPUS is None, reason="DSCONF_CORPUS is not set")

LIST = Path(__file__).parent / "corpus_translated.txt"
MUST_TRANSLATE = LIST.read_text(encoding="utf-8").split("\n")[:-1]
"""The names of the configs that translate without anything unsupported; ./dev corpus --write lists them."""


def corpus_json() -> list[Path]:
    """Every JSON file of the corpus, an empty list without one."""
    return sorted(Path(CORPUS).glob("ds_json*/*.json")) if CORPUS else []


def configs() -> list[Path]:
    """Those that are DeepSpeed configs by themselves, and no piece of another file."""
    return [path for path in corpus_json() if path.parent.name == "ds_json"]


def named(path: Path) -> str:
    """The name by which lists know a file."""
    return path.stem


def corpus_yaml() -> list[Path]:
    """The configs of launchers and trainers, nearly all of them YAML; an empty list without a corpus."""
    folders = ("accelerate_yaml", "other_yaml")
    return sorted(path for name in folders for path in Path(CORPUS).glob(f"{name}/*")) if CORPUS else []
