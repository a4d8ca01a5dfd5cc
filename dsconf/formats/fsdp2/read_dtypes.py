"""Dtypes of torch."""

from __future__ import annotations

from dsconf.formats.fsdp2.read_values import Known, Ref, Value
from dsconf.plan import Dtype

_DTYPES: dict[str, Dtype] = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
}


def dtype_of(value: Value | None) -> Dtype | None:
    """The dtype that a value is; None for any other value."""
    if isinstance(value, Known) and isinstance(value.value, str):  # as transformers takes it
        return _DTYPES.get(value.value.removeprefix("torch."))
    if isinstance(value, Ref) and value.name.startswith("torch."):
        return _DTYPES.get(value.name.removeprefix("torch."))
    return None


def given_dtype(dtype: object) -> Dtype | None:
    """A dtype as the Plan calls it, whether it is given so or as torch calls it; None for another value."""
    names: dict[object, Dtype] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return names.get(dtype) if isinstance(dtype, str) and dtype in names else dtype_of(Known(dtype))
