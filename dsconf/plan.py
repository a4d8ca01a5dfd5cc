"""The Plan: how a model is trained over GPUs, independent of framework.

It is the hub of all translation: readers turn a Config into a Plan, writers turn a Plan into another format. What a
source does not determine is None; what it leaves to be filled in ("auto") is `Unresolved`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Dtype = Literal["fp32", "bf16", "fp16"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Unresolved(_Frozen):
    """A value that the source leaves to somebody else, such as "auto" in `key`."""

    key: str


class Batch(_Frozen):
    """Batch sizes in samples. `total = micro * accumulation * world_size` where all are known."""

    micro: int | Unresolved | None = None
    """Samples that one GPU takes at once."""
    accumulation: int | Unresolved | None = None
    """Micro batches per optimizer step."""
    total: int | Unresolved | None = None
    """Samples per optimizer step over all GPUs."""
    world_size: int | None = None
    """The number of data-parallel GPUs that the sizes are for; None: any."""


class LossScaling(_Frozen):
    """The factor on the loss that keeps fp16 gradients from vanishing; fields without a value mean a fixed factor."""

    scale: float
    """The factor, or the first one."""
    window: int | None = None
    """Steps without an overflow after which the factor doubles."""
    hysteresis: int | None = None
    """The overflow at which the factor is halved; the ones before it only skip their step."""
    refill: bool | None = None
    """Whether the hysteresis starts anew after each step without an overflow, not only where the factor doubles."""
    minimum: float | None = None
    """The smallest factor: an overflow there ends the run."""

    @property
    def dynamic(self) -> bool:
        """Whether the factor changes."""
        return self.window is not None


class Precision(_Frozen):
    """Dtypes of the parts of a step."""

    compute: Dtype | Unresolved = "fp32"
    """Parameters in forward and backward; fp32 casts nothing, so that a model loaded in 16 bits stays so."""
    reduce: Dtype | None = None
    """Gradients between GPUs; None: as `compute`."""
    accumulate: Dtype | None = None
    """Gradients between micro batches; None: as `compute`."""
    scaling: LossScaling | None = None


class Sharding(_Frozen):
    """What is divided over the GPUs; each kind includes the ones before it."""

    partition: Literal["nothing", "optimizer", "gradients", "parameters"] = "nothing"
    reshard_after_forward: bool | int = True
    """Whether a block's parameters are freed between its forward and its backward; a number: but for a copy that is
    divided over groups of so many ranks."""


class Offload(_Frozen):
    """What rests in CPU memory while it is not needed."""

    parameters: bool = False
    optimizer: bool = False
    """The optimizer's state; the CPU computes the step."""
    pinned: bool = False
    """Page-locked memory."""


class Optimizer(_Frozen):
    """The optimizer. Values are those in force, defaults of the source written out."""

    name: Literal["AdamW"]
    lr: float | Unresolved
    betas: tuple[float, float] | Unresolved
    eps: float | Unresolved
    weight_decay: float | Unresolved


class Schedule(_Frozen):
    """A learning rate schedule of DeepSpeed's kind, stepped once per applied optimizer step."""

    name: Literal["WarmupLR", "WarmupDecayLR"]
    min_lr: float | Unresolved
    max_lr: float | Unresolved | None
    """None: the learning rate of each parameter group."""
    warmup_steps: int | Unresolved
    warmup: Literal["log", "linear"] | Unresolved
    total_steps: int | Unresolved | None = None
    """Only where the rate decays: the step at which it is 0."""


class Clipping(_Frozen):
    """Clipping by the norm of the whole gradient; None: no clipping."""

    max_norm: float | Unresolved | None = None


class Wrapping(_Frozen):
    """Which modules are sharded as units."""

    block_classes: tuple[str, ...] = ()
    """Class names; empty: not known."""


class Plan(_Frozen):
    """How a model is trained."""

    batch: Batch = Batch()
    precision: Precision = Precision()
    sharding: Sharding = Sharding()
    offload: Offload = Offload()
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    clipping: Clipping = Clipping()
    wrapping: Wrapping = Wrapping()
