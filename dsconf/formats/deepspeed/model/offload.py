"""The objects inside `zero_optimization`: offloading, ZenFlow, leaf modules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Fill, Key
from dsconf.formats.section import PydanticSection

OffloadDevice = Literal["none", "cpu", "nvme"]


class OffloadParam(PydanticSection):
    """Where the parameter shards rest while they are not needed; acts at stage 3 only."""

    device: Annotated[OffloadDevice, Key(auto=Fill("none", "none"))] = "none"
    """Where parameters are kept: in CPU memory, on an NVMe drive, or not offloaded ("none")."""
    nvme_path: Annotated[str | None, Key(auto=Fill("none", "none"))] = None
    """The folder on the NVMe drive; needed when device is "nvme"."""
    buffer_count: Annotated[int, Key(unit="buffers")] = Field(5, ge=0)
    """Buffers for moving parameters to and from the NVMe drive."""
    buffer_size: Annotated[int, Key(unit="elements")] = Field(100_000_000, ge=0)
    """The size of one such buffer; the shard of every parameter must fit in it."""
    max_in_cpu: Annotated[int, Key(unit="elements")] = Field(1_000_000_000, ge=0)
    """Parameter elements that stay in CPU memory when offloading to NVMe."""
    pin_memory: Annotated[bool, Key()] = True
    """Use page-locked CPU memory: faster copies, but the memory cannot be swapped out."""


class OffloadOptimizer(PydanticSection):
    """Where the optimizer states rest; they are then updated by the CPU. For stages 1 to 3."""

    device: Annotated[OffloadDevice, Key(auto=Fill("none", "none"))] = "none"
    """Where the states are kept: in CPU memory, on an NVMe drive (stage 3 only; stages 1 and 2 use CPU memory
    instead), or not offloaded ("none")."""
    nvme_path: Annotated[str | None, Key(auto=Fill("none", "none"))] = None
    """The folder on the NVMe drive; needed when device is "nvme" at stage 3."""
    buffer_count: Annotated[int, Key(unit="buffers")] = Field(4, ge=0)
    """Buffers for moving states to and from the NVMe drive; at least the number of tensors that the optimizer
    keeps per parameter, which is 4 for Adam."""
    pin_memory: Annotated[bool, Key()] = True
    """Use page-locked CPU memory: faster copies, but the memory cannot be swapped out."""
    pipeline_read: Annotated[bool, Key()] = False
    """Read the next tile from NVMe while the current one is updated (stage 3)."""
    pipeline_write: Annotated[bool, Key()] = False
    """Write the previous tile to NVMe while the current one is updated (stage 3)."""
    fast_init: Annotated[bool, Key()] = False
    """Faster start of the optimizer when its states go to NVMe (stage 3)."""
    ratio: Annotated[float, Key()] = Field(1.0, ge=0, le=1)
    """The fraction of the parameters that the CPU updates; below 1 the rest stays on the GPU, which needs
    stage 3."""
    super_offload: Annotated[bool, Key()] = False
    """Offloading tuned for chips that join CPU and GPU, such as GH200; stage 3 only."""
    cpuadam_cores_perc: Annotated[float, Key()] = Field(0.8, ge=0, le=1)
    """The fraction of the CPU cores that update the optimizer with super_offload."""


class ZenFlow(PydanticSection):
    """ZenFlow: the GPU updates the most important gradients at once, the CPU the rest later."""

    topk_ratio: Annotated[float, Key()] = Field(0.1, gt=0, lt=1)
    """The fraction of gradient columns that count as important."""
    select_strategy: Annotated[Literal["auto", "step", "epoch"], Key()] = "auto"
    """Whether the important columns are chosen anew after steps, after epochs, or when ZenFlow sees fit."""
    select_interval: Annotated[int | Literal["auto"], Key(unit="steps or epochs")] = "auto"
    """How often the important columns are chosen anew; a number needs a select_strategy other than "auto"."""
    update_interval: Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], Key(unit="steps")] = "auto"
    """How many steps pass between two updates of the less important part. It takes the place of
    gradient_accumulation_steps."""
    overlap_step: Annotated[bool, Key()] = False
    """Run the optimizer step of the CPU beside the forward and backward pass."""
    offload: Annotated[bool, Key()] = False
    """Keep the optimizer states of the important columns in CPU memory too; needs overlap_comm."""
    auto_ratio: Annotated[float, Key()] = Field(0.99, ge=0, le=1)
    """The threshold by which update_interval "auto" decides when to update."""
    full_warm_up_rounds: Annotated[int, Key(unit="steps")] = 0
    """Steps at the start in which every gradient is updated at once."""
    pt_reserved_cores_perc: Annotated[float, Key()] = Field(0.5, ge=0, le=1)
    """The fraction of the CPU cores left to PyTorch; the others run ZenFlow's optimizer."""
    steps_per_epoch: Annotated[int | None, Key(unit="steps")] = None
    """Set by DeepSpeed while it runs; leave it out."""


class LeafModule(PydanticSection):
    """Modules whose parameters ZeRO-3 gathers as one piece, for example the experts of an MoE block."""

    classes: Annotated[list[str] | str, Key()] = Field(
        default=[
            "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
            "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
            "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
        ]
    )
    """Class names of such modules, alone or with their package. The default list is replaced, not added
    to."""
    names: Annotated[list[str] | str, Key()] = Field(default=[])
    """Full names of such modules inside the model."""
    name_suffixes: Annotated[list[str] | str, Key()] = Field(default=[])
    """Endings of the names of such modules."""
