"""Files that options name: a model's config.json, TrainingArguments, the YAML of `accelerate launch`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from dsconf.config.context import Launch, Model
from dsconf.document.node import Document
from dsconf.document.source import Unusable, read_text
from dsconf.formats.transformers.size import parameters

Yaml = Callable[[str], Any]
"""Gives the value of a YAML text; raises ValueError."""
Scan = Callable[[str, str], Document]


def load_model(path: str, yaml: Yaml) -> Model:
    """The model of a `config.json` of transformers. Raises BadParameter."""
    config = _load(path, "--model", yaml)
    names = config.get("architectures")
    dtype = config.get("dtype", config.get("torch_dtype"))  # transformers 4 wrote the second
    text_config = config.get("text_config")
    model_type, tied = config.get("model_type"), config.get("tie_word_embeddings")
    return Model(
        architecture=names[0] if isinstance(names, list) and names else None,
        model_type=model_type if isinstance(model_type, str) else None,
        hidden_size=_hidden_size(config),
        text_hidden_size=_hidden_size(text_config) if isinstance(text_config, dict) else None,
        dtype=dtype if isinstance(dtype, str) else None,
        tied=tied if isinstance(tied, bool) else None,
        heads=_heads(config),
        parameters=parameters(config),
        parts=_parts(config),
    )


def _heads(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of attention heads that stand there, without those of the parts."""
    named = (config.get(name) for name in ("num_attention_heads", "num_key_value_heads"))
    return tuple(number for number in named if isinstance(number, int) and not isinstance(number, bool))


def _parts(config: Mapping[str, Any]) -> dict[str, str]:
    """The types of the sections that have one."""
    types = {name: part.get("model_type") for name, part in config.items() if isinstance(part, dict)}
    return {name: kind for name, kind in types.items() if isinstance(kind, str)}


def _hidden_size(config: Mapping[str, Any]) -> int | None:
    if "hidden_size" in config:
        size = config["hidden_size"]
    else:
        sizes = config.get("hidden_sizes")
        numbers = [each for each in sizes if isinstance(each, int)] if isinstance(sizes, list) else []
        size = max(numbers, default=None)
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def load_training_args(path: str, yaml: Yaml) -> Mapping[str, Any]:
    """The TrainingArguments of a JSON or YAML file, by name. Raises BadParameter."""
    return _load(path, "--training-args", yaml)


def load_launch(path: str, yaml: Yaml, scan: Scan) -> Launch:
    """What the YAML (or JSON) of `accelerate launch` says; `scan` reads YAML with its places. Raises BadParameter."""
    config = _load(path, "--launch-config", yaml)
    processes, section = config.get("num_processes"), config.get("deepspeed_config")
    whole = isinstance(processes, int) and not isinstance(processes, bool) and processes > 0
    return Launch(
        file=path,
        distributed_type=config.get("distributed_type"),
        mixed_precision=config.get("mixed_precision"),
        num_processes=processes if whole else None,
        deepspeed=section if isinstance(section, dict) else {},
        document=scan(path, read_text(path)) if _is_yaml(path) else None,
    )


def _is_yaml(path: str) -> bool:
    return path.endswith((".yaml", ".yml"))


def _load(path: str, option: str, yaml: Yaml) -> dict[str, Any]:
    try:
        text = read_text(path).removeprefix("\ufeff")
        value = yaml(text) if _is_yaml(path) else json.loads(text)
    except Unusable as problem:
        raise click.BadParameter(f"{path}: {problem.message}", param_hint=option) from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{path}: the top level is not an object", param_hint=option)
    return value
