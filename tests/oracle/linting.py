"""Lint as the oracle tests ask it, and public configs made ready for DeepSpeed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from configs import config_of
from corpus import corpus_json

from dsconf.config.context import Consumer
from dsconf.document.source import Unusable
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules

from .judge import BATCH_KEYS, refusal
from .mutants import BASES, WORLD_SIZES, Config

RULES = load_rules()


def lint(text: str, consumer: Consumer | None = None, world_size: int | None = None) -> Result:
    return lint_config(config_of(text, consumer, world_size), RULES)


def without_autos(text: str) -> str:
    """The text with a plausible value for each "auto" that DeepSpeed itself would fail on."""
    config = config_of(text)
    given = {name for name in BATCH_KEYS if isinstance(config.raw(name), int)}
    values: dict[str, object] = dict.fromkeys(BATCH_KEYS)
    if not given & set(BATCH_KEYS[:2]):
        values["train_micro_batch_size_per_gpu"] = 2
    for item in reversed(config.written):
        if item.entry.node.scalar == "auto" and item.section.get("reader") != "pydantic":
            kinds = (item.spec or {}).get("type", ())
            plausible = 1 if "float" in kinds or "int" in kinds else [0.9, 0.999] if "list" in kinds else None
            span = item.entry.node.span
            text = text[: span.start] + json.dumps(values.get(item.path, plausible)) + text[span.end :]
    return text


@cache
def accepted_public(world_sizes: Sequence[int]) -> list[tuple[Config, list[int]]]:
    """The public configs that DeepSpeed accepts once their "auto" is filled, with the world sizes at which it does."""
    found = []
    for path in corpus_json():
        try:
            config = json.loads(without_autos(path.read_text(encoding="utf-8")))
        except (ValueError, Unusable):
            continue
        sizes = [size for size in world_sizes if refusal(json.dumps(config), size) is None]
        if sizes:
            found.append((config, sizes))
    return found


def bases() -> list[tuple[Config, list[int]]]:
    """Ours, each as often as there are public ones for it, and the public ones."""
    public = accepted_public(WORLD_SIZES)
    ours = [(base, list(WORLD_SIZES)) for base in BASES]
    return [*ours * max(1, len(public) // len(ours)), *public]
