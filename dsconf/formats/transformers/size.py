"""How many parameters a model has, from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Dense decoders with a gated MLP, whose sizes follow from the numbers of config.json."""
_NEEDED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "num_key_value_heads",
)  # fmt: skip
"""What has to be written: defaults differ by type, and by release."""


def parameters(config: Mapping[str, Any]) -> int | None:
    """The number of parameters of a causal model, None where it does not follow from what is written."""
    kind = config.get("model_type")
    if kind not in _TYPES or not all(_is_count(config.get(name)) for name in _NEEDED):
        return None
    hidden, layers, heads, inner, words, groups = (config[name] for name in _NEEDED)
    width: Any = config.get("head_dim")
    tied = config.get("tie_word_embeddings")
    if width is None and kind != "qwen3":
        width = hidden // heads
    if not (_is_count(width) and isinstance(tied, bool)):
        return None
    attention = 2 * hidden * heads * width + 2 * hidden * groups * width
    if kind == "qwen2":
        attention += heads * width + 2 * groups * width  # biases of queries, keys and values
    if kind == "qwen3":
        attention += 2 * width  # norms of queries and keys
    layer = attention + 3 * hidden * inner + 2 * hidden
    return int(words * hidden * (1 if tied else 2) + layers * layer + hidden)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
