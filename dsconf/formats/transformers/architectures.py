"""What is known of a model of transformers by its `model_type`.

`architectures.json` is written by `tools/architectures.py` from transformers: for each `model_type` the class that was
built, and of it

blocks   the classes of the repeated layers, but for those of its parts
parts    by section of config.json the `model_type` that it has by default, for models that contain others
tied     whether input and output embeddings are one parameter by default
experts  whether those of a mixture of experts are modules ("listed"), or lie together in a parameter ("stacked")
tensor   the place of its plan among those of tensor parallelism: styles by module below a block, and below the model
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

_FILE = Path(__file__).with_suffix(".json")


class Architecture(NamedTuple):
    """One kind of model."""

    model_type: str
    model: str
    """The class from which the rest is known, such as LlamaForCausalLM."""
    blocks: tuple[str, ...]
    """The classes of the layers to shard one by one, those of its parts included."""
    tied: bool
    experts: Literal["listed", "stacked"] | None
    block_styles: Mapping[str, str]
    root_styles: Mapping[str, str]
    """The styles of tensor parallelism, by module below a block and below the model; both empty without a plan."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def transformers_version() -> str:
    """The version that the table is of."""
    version: str = _table()["transformers"]
    return version


def architecture(model_type: str, parts: Mapping[str, str]) -> Architecture | None:
    """The model of a `model_type`, None where it is unknown; `parts` are sections that have types of their own."""
    entry = _table()["models"].get(model_type)
    if entry is None:
        return None
    blocks = set(entry.get("blocks", ()))
    experts = {entry.get("experts")}
    for name, default in entry.get("parts", {}).items():
        part = architecture(parts.get(name, default), {})
        if part is None:
            return None
        blocks |= {*part.blocks}
        experts.add(part.experts)
    plan = _table()["tensor"][entry["tensor"]] if "tensor" in entry else {"block": {}, "root": {}}
    return Architecture(
        model_type,
        entry["model"],
        tuple(sorted(blocks)),
        entry.get("tied", False),
        "listed" if "listed" in experts else "stacked" if "stacked" in experts else None,
        plan["block"],
        plan["root"],
    )
