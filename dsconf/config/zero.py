"""Facts about ZeRO: which of DeepSpeed's classes splits the training state, and what switches its parts on."""

from __future__ import annotations

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

CPU_CLASSES = ("DeepSpeedCPUAdam", "ZenFlowCPUAdam", "DeepSpeedCPULion", "DeepSpeedCPUAdagrad")
"""Optimizers whose step refuses parameters that are on a GPU."""


def zero_optimizer(read: Reader) -> object:
    """What wraps the optimizer: "none" at stage 0, "stage12", "stage3", or "bf16" (`BF16_Optimizer`).

    The last takes the place of stage 1: see `bf16_optimizer`.
    """
    stage = read.value("zero_optimization.stage")
    if stage != 1 and isinstance(stage, int):
        return {0: "none", 2: "stage12", 3: "stage3"}[stage]
    whole = read.fact("bf16_optimizer")
    if UNKNOWN in (stage, whole):
        return UNKNOWN
    return "bf16" if whole else "stage12"


def zenflow_on(read: Reader) -> object:
    """Whether the section `zenflow` is there: even an empty one switches ZenFlow on."""
    section = read.value("zero_optimization.zenflow")
    return UNKNOWN if section is UNKNOWN else section is not None


def sums_gradients(read: Reader) -> object:
    """Whether gradients are summed over the ranks instead of averaged; versions without the key average."""
    operation = read.given("gradient_allreduce_op")
    return UNKNOWN if operation is UNKNOWN else str(operation).lower() == "sum"


def scales_before_reducing(read: Reader) -> object:
    """Whether gradients are divided before they are reduced: by a factor, or by all of the world size."""
    before = read.value("prescale_gradients")
    factor = read.value("gradient_predivide_factor")
    if before is True or (isinstance(factor, int | float) and factor != 1):
        return True
    return UNKNOWN if UNKNOWN in (before, factor) else False


def counts_steps_apart(read: Reader) -> object:
    """Whether the optimizer that DeepSpeed builds counts its steps for each parameter, as torch's do."""
    kind = read.fact("optimizer_class")
    return kind.startswith("torch.optim.") if isinstance(kind, str) else UNKNOWN


def builds_cpu_optimizer(read: Reader) -> object:
    """Whether the optimizer that DeepSpeed builds from the file works on the CPU only."""
    kind = read.fact("optimizer_class")
    return UNKNOWN if kind is UNKNOWN else kind in CPU_CLASSES
