"""DeepSpeed's names of dtypes, and those of PyTorch for the same."""

from __future__ import annotations

_NAMES = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32"}


def short_name(text: str) -> str:
    """`fp16`, `bf16` or `fp32` for whatever spelling; other text in lower case, without "torch."."""
    name = text.strip().lower().removeprefix("torch.")
    return _NAMES.get(name, name)
