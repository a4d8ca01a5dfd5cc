"""Numbers of parameters from a config.json alone, against models of transformers that are built without weights."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dsconf.formats.transformers.size import parameters

pytestmark = pytest.mark.oracle

SIZES: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": True},
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 2, "head_dim": 24, "tie_word_embeddings": True},
    {"num_hidden_layers": 1, "vocab_size": 97},
]


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("sizes", SIZES)
def test_dense_decoders(kind: str, sizes: dict[str, Any]) -> None:
    if kind == "qwen3":
        sizes = {"head_dim": 16, **sizes}
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    numbers = {
        "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 144,
        "vocab_size": 320, "num_key_value_heads": 4, "tie_word_embeddings": False, **sizes,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **numbers)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    built = sum(parameter.numel() for parameter in model.parameters())
    assert parameters({"model_type": kind, **numbers}) == built


def test_others_are_left_open() -> None:
    known = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 8}
    assert parameters({"model_type": "llama", **known}) is None
    assert parameters({"model_type": "mixtral", **known, "vocab_size": 10}) is None
    assert parameters({"model_type": "llama", **known, "vocab_size": True}) is None
