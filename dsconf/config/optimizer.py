"""Facts about what DeepSpeed does with the optimizer that it builds: whether ZeRO takes it, and what wraps it."""

from __future__ import annotations

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_TESTED = (
    "torch.optim.Adam", "torch.optim.AdamW", "torch.optim.Adagrad", "FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam",
    "DeepSpeedCPUAdagrad", "DeepSpeedCPULion", "FusedLion", "MuonWithAuxAdam",
)  # fmt: skip
"""ZERO_SUPPORTED_OPTIMIZERS of `deepspeed.runtime.zero.utils`: these classes, not their subclasses."""


def optimizer_tested(read: Reader) -> object:
    """Whether ZeRO takes the optimizer of this file without `zero_allow_untested_optimizer`."""
    name = read.fact("optimizer_class")
    if not isinstance(name, str) or name.startswith("mup."):
        return UNKNOWN
    return name in _TESTED


def optimizer_wrapped(read: Reader) -> object:
    """Whether the engine puts an optimizer of its own around the one that it builds, which is none of torch's."""
    stage, precision = read.value("zero_optimization.stage"), read.fact("precision")
    if isinstance(stage, int) and stage > 0:
        return True
    if precision in ("bf16", "fp16"):
        return True
    return UNKNOWN if stage is UNKNOWN or precision is UNKNOWN else False
