"""The Plan: how a model is trained over GPUs, independent of framework.

It is the hub of all translation: readers turn a Config into a Plan, writers turn a Plan into another format. What a
source does not determine is None; what it leaves to be filled in ("auto") is `Unresolved`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    autocast: Dtype | None = None
    """What torch.autocast casts to inside the model's forward pass (not the loss); None: no autocast."""
    masters: Dtype = "fp32"
    """Parameters as the optimizer updates them."""
    casts_inputs: bool = False
    """Whether floating-point inputs of the model are cast to `compute`."""
    units_cast: Literal["none", "model", "all"] = "none"
    """Which units cast their floating-point inputs to `compute`: the whole model, or the blocks as well."""
    buffers: Dtype | Unresolved | None = None
    """Floating-point buffers; None: as they were loaded."""
    fp32_buffers: tuple[str, ...] = ()
    """Parts of the names of buffers that are fp32 all the same; * stands for any characters."""
    scaling: LossScaling | None = None
    rounded_masters: bool = True
    """Whether fp32 masters start from weights rounded to `compute`, or from the weights as they are."""
    moments: Dtype | None = None
    """The optimizer's state; None: as `masters`."""
    steps_before: bool = False
    """Whether in bf16 the optimizer takes a step with zero gradients before the first one, as DeepSpeed's does
    without ZeRO."""

    @property
    def coarsest(self) -> Dtype:
        """The dtype of a step that keeps the fewest bits; bf16 where that is open."""
        dtypes = (self.compute, self.reduce, self.accumulate, self.autocast)
        if "bf16" in dtypes or isinstance(self.compute, Unresolved):
            return "bf16"
        return "fp16" if "fp16" in dtypes else "fp32"


class Sharding(_Frozen):
    """What is divided over the GPUs; each kind includes the ones before it."""

    partition: Literal["nothing", "optimizer", "gradients", "parameters"] = "nothing"
    reshard_after_forward: bool | int = True
    """Whether a block's parameters are freed between its forward and its backward; a number: but for a copy that is
    divided over groups of so many ranks."""
    group: int | None = None
    """Ranks that the state is divided over, the groups being copies of each other; None: all."""
    sums_gradients: bool = False
    """Whether the gradients of the ranks are added up, where they are averaged otherwise."""
    own_linear: bool | None = None
    """Whether linear layers run the framework's own code, which may round once more, or torch's; None: not said."""
    keeps_gathered: bool = False
    """Whether linear layers keep gathered weights until the backward pass, as torch's make ZeRO-3 keep them."""


class Offload(_Frozen):
    """What rests in CPU memory while it is not needed."""

    parameters: bool = False
    optimizer: bool = False
    """The optimizer's state; the CPU computes the step."""
    pinned: bool = False
    """Page-locked memory."""


_ADAM = ("lr", "betas", "eps", "weight_decay")

OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "AdamW": (*_ADAM, "amsgrad", "maximize", "fused"),
    "Adam": (*_ADAM, "amsgrad", "maximize", "fused", "decoupled_weight_decay"),
    "Adadelta": ("lr", "rho", "eps", "weight_decay", "maximize"),
    "Adagrad": ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize", "fused"),
    "Adamax": (*_ADAM, "maximize"),
    "ASGD": ("lr", "lambd", "alpha", "t0", "weight_decay", "maximize"),
    "NAdam": (*_ADAM, "momentum_decay", "decoupled_weight_decay", "maximize"),
    "RAdam": (*_ADAM, "decoupled_weight_decay", "maximize"),
    "RMSprop": ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "fused"),
    "Lion": ("lr", "betas", "weight_decay"),
    "Muon": ("lr", "muon_lr", "adam_lr", "momentum", "betas", "eps", "weight_decay"),
}
"""By name the arguments of the optimizers, in order; all but Lion are classes of torch.optim.

Muon has AdamW beside it for all that is no hidden matrix, and lr where either has no rate of its own.
"""

Argument = bool | int | float | str | tuple[float, ...] | None


class Optimizer(_Frozen):
    """The optimizer. Arguments that are not here have torch's own default."""

    name: str
    """One of OPTIMIZERS."""
    arguments: dict[str, Unresolved | Argument]
    bias_correction: bool = True
    """Only for Adam and AdamW: whether the moments are corrected in the first steps."""
    decoupled: bool = True
    """Only for Muon: whether the Adam beside it decouples the weight decay."""
    spares_norms: bool = False
    """Whether biases and the weights of norms are left out of weight decay, as Trainer does."""
    sign_of_zero: Literal["bit", "negative"] = "bit"
    """Only for Lion: what 0 counts as: by its sign bit, as in DeepSpeed's CPU kernel, or negative, as on its GPUs."""
    own_kernel: bool = False
    """Whether a kernel of DeepSpeed computes the step, which rounds differently from the class of torch."""


class Warmup(_Frozen):
    """A rise to the peak, then a constant rate, or a linear decay to 0."""

    name: Literal["WarmupLR", "WarmupDecayLR"]
    min_lr: float | Unresolved
    max_lr: float | Unresolved | None
    """None: the learning rate of each parameter group."""
    warmup_steps: int | Unresolved
    warmup: Literal["log", "linear"] | Unresolved
    total_steps: int | Unresolved | None = None
    """Only where the rate decays: the step at which it is 0."""


class WarmupCosine(_Frozen):
    """A rise to the learning rate of each parameter group, then half a cosine; the ratios are parts of that rate."""

    name: Literal["WarmupCosineLR"] = "WarmupCosineLR"
    min_ratio: float | Unresolved
    final_ratio: float | Unresolved
    warmup_steps: int | Unresolved
    warmup: Literal["log", "linear"] | Unresolved
    total_steps: int | Unresolved


class Momentum(_Frozen):
    """The first beta of the optimizer, moved against the learning rate; the second is 0.99 then."""

    low: float | Unresolved
    high: float | Unresolved
    decay: float | Unresolved


class OneCycle(_Frozen):
    """One triangle up and down, in stairs where there are any, then a decay."""

    name: Literal["OneCycle"] = "OneCycle"
    min_lr: float | Unresolved
    max_lr: float | Unresolved
    first_steps: float | Unresolved
    second_steps: float | Unresolved
    first_stairs: int | Unresolved = 0
    second_stairs: int | Unresolved = 0
    decay_steps: int | Unresolved = 0
    """0: no decay."""
    decay: float | Unresolved = 0.0
    momentum: Momentum | None = None


class RangeTest(_Frozen):
    """A learning rate that grows without end, in stairs or evenly."""

    name: Literal["LRRangeTest"] = "LRRangeTest"
    min_lr: float | Unresolved
    interval: int | Unresolved
    rate: float | Unresolved
    staircase: bool | Unresolved


class TorchSchedule(_Frozen):
    """A class of torch.optim.lr_scheduler with its keyword arguments."""

    name: str
    arguments: dict[str, Any]


class TrainerSchedule(_Frozen):
    """A schedule of transformers' get_scheduler."""

    name: str
    """As its SchedulerType: "linear", "cosine", "constant_with_warmup"."""
    warmup_steps: int | float | Unresolved
    """Steps; below 1 a part of all steps."""
    total_steps: int | Unresolved | None = None
    """The step at which the curve ends; None: that of the run."""
    arguments: dict[str, Any] = {}
    """More keyword arguments, which depend on the name."""


Schedule = Warmup | WarmupCosine | OneCycle | RangeTest | TorchSchedule | TrainerSchedule
"""A learning rate schedule, stepped once per applied optimizer step."""


class Clipping(_Frozen):
    """What the norm of the whole gradient decides."""

    max_norm: float | Unresolved | None = None
    """The norm that a larger gradient is scaled down to; None: no clipping."""
    skips_not_finite: bool | None = None
    """Whether a step whose norm is not finite is left out; None: not said."""


class Wrapping(_Frozen):
    """Which modules are sharded as units."""

    block_classes: tuple[str, ...] = ()
    """Class names; empty: not known."""
    separate_ends: bool = False
    """Whether embeddings and heads outside of the blocks are units of their own, where no weight is tied."""
    min_params: int | None = None
    """Modules with more parameters than that are units; None: it is not by size."""
    root_only: bool = False
    """Whether the whole model is the only unit."""
    unused_parameters: bool = False
    """Whether a GPU may leave parameters without a gradient that another one uses, as in a mixture of experts."""


class Parallelism(_Frozen):
    """What is divided over GPUs that see the same data."""

    tensor: int = 1
    """GPUs over which each layer is divided."""
    context: int = 1
    """GPUs over which each sequence is divided, where all see the whole attention in a ring."""
    sequence: int = 1
    """GPUs over which each sequence is divided, and the heads in the attention, as Ulysses does it."""
    block_styles: dict[str, str] = {}
    """How a layer is divided, by its path in a block: a style of the tensor parallelism of transformers."""
    root_styles: dict[str, str] = {}
    """The same for layers outside of the blocks, by path in the model."""


class Launch(_Frozen):
    """The machines."""

    world_size: int | None = None
    gpus_per_node: int | None = None
    machines: int | None = None
    host: str | None = None
    """The address of the machine of rank 0."""
    port: int | None = None
    """The port there at which the processes meet."""
    machine_rank: int = 0
    """Which of the machines the source is for."""


class Checkpoint(_Frozen):
    """How weights are saved, and loaded at the start."""

    weights: Literal["full", "sharded", "local"] | None = None
    """Whether a checkpoint has whole tensors (gathered on rank 0), or those of each rank, as DTensors or as FSDP1's
    own flat ones."""
    loads_on_rank_0: bool | None = None
    """Whether only rank 0 reads the weights of a pretrained model, which the others get from it."""


class Length(_Frozen):
    """When training ends, where that is not left to a script."""

    steps: int | Unresolved | None = None
    """Steps of the optimizer."""
    epochs: int | float | Unresolved | None = None
    """Passes over the data; None where `steps` decide."""


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
    parallelism: Parallelism = Parallelism()
    launch: Launch = Launch()
    checkpoint: Checkpoint = Checkpoint()
    length: Length = Length()
    recompute: bool | None = None
    """Whether the activations of the blocks are computed again in the backward pass; None: that is left to the
    script."""

    @property
    def world(self) -> int | None:
        """The number of GPUs that will run: what the launch says, else what the batch sizes are for; None: any."""
        return self.launch.world_size or self.ranks

    @property
    def ranks(self) -> int | None:
        """The number of GPUs that the batch sizes are for; None: any."""
        world = self.batch.world_size
        return None if world is None else world * self.parallelism.tensor
