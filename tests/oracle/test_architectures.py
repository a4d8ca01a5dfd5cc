"""The table of architectures against the real transformers."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

from dsconf.formats.fsdp2.parts import sharding
from dsconf.formats.transformers.architectures import architecture, transformers_version
from tools.architectures import build, classes_of, entry_of

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs the extra verify"),
]

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 67,
}
EXPERTS = {**SMALL, "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 16}
ENCODER = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
T5 = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 67}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 67,
}
OPT = {
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "word_embed_proj_dim": 32,
}

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "gemma", "gemma2", "phi", "stablelm", "starcoder2", "olmo2", "cohere"),
        (SMALL, 2),
    ),
    **dict.fromkeys(("qwen3", "gemma3_text"), ({**SMALL, "head_dim": 8}, 2)),
    **dict.fromkeys(("phi3", "smollm3"), ({**SMALL, "pad_token_id": 0}, 2)),
    **dict.fromkeys(("mixtral", "olmoe"), (EXPERTS, 2)),
    "qwen3_moe": ({**EXPERTS, "head_dim": 8}, 2),
    "gpt2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 67}, 2),
    "gpt_neox": (ENCODER, 2),
    "opt": (OPT, 2),
    **dict.fromkeys(("bert", "roberta", "vit"), (ENCODER, 2)),
    "t5": (T5, 4),
    "bart": (BART, 4),
    "whisper": ({**BART, "pad_token_id": 0}, 4),
}
"""What makes a small model of each type, and the number of its blocks."""


def small(model_type: str) -> Any:
    """A small model, on the CPU."""
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    config = transformers.CONFIG_MAPPING[model_type](**MODELS[model_type][0])
    return getattr(transformers, classes_of(model_type)[0])(config)


@pytest.mark.parametrize("model_type", MODELS)
def test_blocks_are_in_a_model(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = architecture(model_type, {})
    assert known is not None
    model = small(model_type)
    monkeypatch.setattr(sharding, "NAMED_BLOCKS", True)
    monkeypatch.setattr(sharding, "BLOCK_CLASSES", known.blocks)
    blocks = sharding.find_blocks(model)
    assert len(blocks) == MODELS[model_type][1]
    assert {type(block).__name__ for block in blocks} == {*known.blocks}
    inside = {id(param) for block in blocks for param in block.parameters()}
    outside = [param for param in model.parameters() if id(param) not in inside]
    assert len({id(param) for block in blocks for param in block.parameters()}) == sum(
        len(list(block.parameters())) for block in blocks
    ), "a parameter is in two blocks"
    assert len(outside) < len(inside)


@pytest.mark.parametrize("model_type", MODELS)
def test_layers_of_a_plan_are_in_a_block(model_type: str) -> None:
    known = architecture(model_type, {})
    assert known is not None
    if not known.block_styles:
        pytest.skip("transformers has no plan")
    model = small(model_type)
    block = next(module for module in model.modules() if type(module).__name__ in known.blocks)
    names = {name for name, _ in block.named_modules()} | {name for name, _ in block.named_parameters()}
    # A plan may have layers that only some configs have.
    assert len({*known.block_styles} - names) <= len(known.block_styles) // 3
    assert any(style.startswith("rowwise") for style in known.block_styles.values())


@pytest.mark.parametrize(
    "model_type", [*MODELS, "llava", "switch_transformers", "gpt_oss", "qwen2_vl", "deepseek_v3"]
)
def test_the_table_is_that_of_this_transformers(model_type: str) -> None:
    known = architecture(model_type, {})
    assert known is not None
    assert importlib.import_module("transformers").__version__ == transformers_version()
    entry = entry_of(build(model_type, known.model))
    plan = entry.get("tensor", {"block": {}, "root": {}})
    assert known._replace(model_type="") == (
        "",
        entry["model"],
        tuple(entry["blocks"]),
        entry.get("tied", False),
        entry.get("experts"),
        plan["block"],
        plan["root"],
    )
