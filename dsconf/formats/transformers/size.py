"""How many parameters a model has, from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Dense decoders with a gated MLP, whose sizes follow from the numbers of config.json."""
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")


def parameters(config: Mapping[str, Any]) -> int | None:
    """The number of parameters of a causal model, None where it does not follow from what is written."""
    kind = config.get("model_type")
    if kind not in _TYPES or not all(_is_count(config.get(name)) for name in _NEEDED):
        return None
    hidden, layers, heads, inner, words = (config[name] for name in _NEEDED)
    groups, width = config.get("num_key_value_heads", heads), config.get("head_dim") or hidden // heads
    if not (_is_count(groups) and _is_count(width)):
        return None
    attention = 2 * hidden * heads * width + 2 * hidden * groups * width
    if kind == "qwen2":
        attention += heads * width + 2 * groups * width  # biases of queries, keys and values
    if kind == "qwen3":
        attention += 2 * width  # norms of queries and keys
    tied = config.get("tie_word_embeddings", kind in ("qwen2", "qwen3"))
    layer = attention + 3 * hidden * inner + 2 * hidden
    return int(words * hidden * (1 if tied is True else 2) + layers * layer + hidden)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
