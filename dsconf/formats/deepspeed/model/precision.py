"""The sections that choose the number formats: `fp16`, `bf16`, `torch_autocast`, `data_types`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Fill, Key
from dsconf.formats.section import PydanticSection, Reads, Section

# Every spelling of DeepSpeed's own dtype list, in lower case only.
Dtype = Literal[
    "fp16", "float16", "half", "torch.float16",
    "bf16", "bfloat16", "torch.bfloat16",
    "fp32", "float32", "float", "torch.float32",
    "int8", "torch.int8",
]  # fmt: skip


class Fp16(PydanticSection):
    """Mixed precision in float16 with loss scaling."""

    enabled: Annotated[bool, Key(auto=Fill("fp16 or fp16_full_eval", "mixed_precision is fp16"))] = False
    """Keep the model in float16 and train it with a scaled loss. Cannot be combined with bf16."""
    auto_cast: Annotated[bool, Key()] = False
    """Cast floating-point inputs of the model to float16 before the forward pass."""
    loss_scale: Annotated[float, Key(), Reads(python_number=True)] = Field(0.0, ge=0)
    """The factor on the loss: 0 adjusts it while training (dynamic), a positive number keeps it fixed and
    leaves the keys of the dynamic scaler without effect."""
    initial_scale_power: Annotated[int, Key()] = 16
    """Dynamic scaling starts at 2 to this power."""
    loss_scale_window: Annotated[int, Key(unit="steps"), Reads(python_number=True)] = 1000
    """Steps without an overflow after which the dynamic scale is doubled. Must be positive when fp16 is on
    and the scaling dynamic."""
    hysteresis: Annotated[int, Key(unit="overflows")] = 2
    """Overflows that are tolerated before the dynamic scale is halved; not used at ZeRO stage 0."""
    consecutive_hysteresis: Annotated[bool, Key()] = False
    """true refills the hysteresis after every step without an overflow, false only when the scale grows."""
    min_loss_scale: Annotated[int, Key(), Reads(python_number=True)] = 1
    """The dynamic scale does not go below this; training stops when an overflow happens there. Must be
    positive when fp16 is on and the scaling dynamic."""
    fp16_master_weights_and_grads: Annotated[bool, Key()] = False
    """Keep the optimizer's master weights and gradients in float16 too. Needs ZeRO and the optimizer
    offloaded to DeepSpeed's CPU Adam."""


class Bf16(PydanticSection):
    """Mixed precision in bfloat16; it needs no loss scaling."""

    enabled: Annotated[bool, Key(auto=Fill("bf16 or bf16_full_eval", "mixed_precision is bf16"))] = False
    """Keep the model in bfloat16. Cannot be combined with fp16."""
    immediate_grad_update: Annotated[bool, Key()] = False
    """Add each gradient to its float32 copy as soon as it is ready instead of after the backward pass; only
    DeepSpeed's BF16 optimizer reads it."""
    check_grad_overflow: Annotated[bool, Key()] = True
    """Look for inf and nan in the gradients before a step and skip the step when there are any."""
    bf16_master_weights_and_grads: Annotated[bool, Key()] = False
    """Keep the optimizer's master weights and gradients in bfloat16 instead of float32. Needs ZeRO stage 1 or
    higher."""
    bf16_optimizer_states: Annotated[bool, Key()] = False
    """Keep the optimizer states in bfloat16 too. Needs bf16_master_weights_and_grads and ZeRO stage 1 or
    higher."""


class TorchAutocast(Section):
    """Mixed precision by torch.autocast: weights stay as they are, single operations run in fewer bits."""

    enabled: Annotated[bool, Key()] = False
    """Use torch.autocast. It can be combined with fp16 and bf16, and then both act."""
    dtype: Annotated[Dtype | None, Key(), Reads(fails="parse", null=False)] = None
    """The format of those operations, fp16 or bf16; left out, torch's own choice for the device. It is read
    even while autocast is off."""
    lower_precision_safe_modules: Annotated[
        list[str] | None, Key(), Reads(fails="parse", null=False, iterated=True)
    ] = None
    """The module classes whose gradients may travel in that format, each with its package; left out, linear
    and convolution layers. A text counts as the list of its letters, none of which can be imported."""


class DataTypes(Section):
    """Number formats apart from the one of the model."""

    grad_accum_dtype: Annotated[Dtype | None, Key(), Reads(fails="init")] = None
    """The format in which gradients are accumulated; null uses the format of the model, so bf16 models add up
    in bfloat16."""
    param_dtype: Annotated[Dtype | None, Key(), Reads(fails="init")] = None
    """The format of the parameters; it must agree with the enabled precision section."""
    buffer_dtype: Annotated[Dtype | None, Key(), Reads(fails="init")] = None
    """The format to which floating-point buffers are cast when fp16 or bf16 is on; null keeps the one they
    were loaded with."""
    keep_in_fp32_modules: Annotated[Literal["auto"] | list[str], Key(), Reads(fails="parse")] = "auto"
    """Name patterns of the modules whose buffers stay in float32 under fp16 or bf16; "auto" lets DeepSpeed
    choose and is not a placeholder here."""
