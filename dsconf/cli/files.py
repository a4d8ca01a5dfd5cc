"""Files that options name: a model's config.json, TrainingArguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from dsconf.config.context import Model
from dsconf.document.source import Unusable, read_text


def load_model(path: str) -> Model:
    """The model of a `config.json` of transformers. Raises BadParameter."""
    config = _load(path, "--model")
    hidden_size = config.get("hidden_size")
    names = config.get("architectures")
    dtype = config.get("dtype", config.get("torch_dtype"))  # transformers 4 wrote the second
    return Model(
        architecture=names[0] if isinstance(names, list) and names else None,
        model_type=config.get("model_type"),
        hidden_size=hidden_size if isinstance(hidden_size, int) else None,
        dtype=dtype if isinstance(dtype, str) else None,
    )


def load_training_args(path: str) -> Mapping[str, Any]:
    """The TrainingArguments of a JSON or YAML file, by name. Raises BadParameter."""
    return _load(path, "--training-args")


def _load(path: str, option: str) -> dict[str, Any]:
    try:
        text = read_text(path)
        value = json.loads(text.removeprefix("\ufeff"))
    except Unusable as problem:
        raise click.BadParameter(f"{path}: {problem.message}", param_hint=option) from None
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{path}: the top level is not an object", param_hint=option)
    return value
