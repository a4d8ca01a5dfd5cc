"""The section `zero_optimization`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.deepspeed.model.offload import LeafModule, OffloadOptimizer, OffloadParam, ZenFlow
from dsconf.formats.key import Fill, Key
from dsconf.formats.section import PydanticSection


class Zero(PydanticSection):
    """ZeRO: which of the training state is split over the GPUs instead of being held by each of them."""

    stage: Annotated[
        Literal[0, 1, 2, 3],
        Key(auto=Fill("2, or the stage of the DeepSpeedPlugin", "2, or the stage of the launcher")),
    ] = 0
    """What is split: nothing (0), optimizer states (1), gradients too (2), parameters too (3)."""

    # How gradients and parameters travel.
    reduce_scatter: Annotated[bool, Key()] = True
    """Average gradients so that each GPU receives its part only; false averages all of them everywhere."""
    reduce_bucket_size: Annotated[
        int, Key(unit="elements", auto=Fill("hidden_size ** 2", "hidden_size ** 2"))
    ] = Field(500_000_000, gt=0)
    """Gradient elements that are averaged together: larger means fewer messages and more memory."""
    allgather_bucket_size: Annotated[int, Key(unit="elements")] = Field(500_000_000, ge=0)
    """Parameter elements that are collected together after a step at stages 1 and 2, where it must be
    even."""
    allgather_partitions: Annotated[bool, Key(status="inert")] = True
    """Accepted, but nothing reads it."""
    use_multi_rank_bucket_allreduce: Annotated[bool, Key()] = True
    """Stages 1 and 2: average one bucket for all ranks together instead of one per rank."""
    overlap_comm: Annotated[bool | None, Key()] = None
    """Average gradients while the backward pass still runs. Left out, it is true at stage 3 and false
    below."""
    contiguous_gradients: Annotated[bool, Key()] = True
    """Copy gradients into one buffer as they appear, which avoids fragmented memory."""
    round_robin_gradients: Annotated[bool, Key()] = False
    """Stages 1 and 2: deal the gradients out in small pieces, so that the ranks copy them to the CPU in
    parallel."""
    compute_grad_norm: Annotated[bool, Key()] = True
    """Compute the norm of all gradients in each step. false is for stages 1 and 2 without clipping."""
    ignore_unused_parameters: Annotated[bool, Key()] = True
    """Go on when a parameter got no gradient; false stops then, but only in the CPU-offload path of stages 1
    and 2."""
    parameter_alignment: Annotated[bool, Key()] = False
    """Stages 1 and 2: pad the flat buffers so that each parameter starts at a multiple of 16 bytes. It
    changes the layout of checkpoints."""

    # Stage 3.
    stage3_prefetch_bucket_size: Annotated[
        int,
        Key(
            unit="elements",
            aliases=("prefetch_bucket_size",),
            auto=Fill("0.9 * hidden_size ** 2, at stage 3 only", "0.9 * hidden_size ** 2"),
        ),
    ] = Field(50_000_000, ge=0)
    """Parameter elements that are fetched ahead of their use."""
    stage3_param_persistence_threshold: Annotated[
        int,
        Key(
            unit="elements",
            aliases=("param_persistence_threshold",),
            auto=Fill("10 * hidden_size, at stage 3 only", "10 * hidden_size"),
        ),
    ] = Field(100_000, ge=0)
    """Parameters smaller than this are not split: less communication, more memory."""
    stage3_model_persistence_threshold: Annotated[
        int, Key(unit="elements", aliases=("model_persistence_threshold",))
    ] = Field(9_223_372_036_854_775_807, ge=0)
    """An upper limit for all the parameters that stay unsplit."""
    stage3_max_live_parameters: Annotated[int, Key(unit="elements", aliases=("max_live_parameters",))] = (
        Field(1_000_000_000, ge=0)
    )
    """Gathered parameter elements that a GPU may hold before it releases some."""
    stage3_max_reuse_distance: Annotated[int, Key(unit="elements", aliases=("max_reuse_distance",))] = Field(
        1_000_000_000, ge=0
    )
    """Keep a gathered parameter when it is needed again within this many elements."""
    stage3_gather_16bit_weights_on_model_save: Annotated[
        bool,
        Key(
            aliases=("gather_16bit_weights_on_model_save",),
            auto=Fill("false, or the value of the DeepSpeedPlugin", "zero3_save_16bit_model, else false"),
        ),
    ] = False
    """Let save_16bit_model() collect the split weights at stage 3; without it, it saves no weights there."""
    stage3_module_granularity_threshold: Annotated[int, Key(aliases=("module_granularity_threshold",))] = 0
    """Modules with fewer parameters per submodule than this are gathered as one piece; 0 turns it off."""
    stage3_use_all_reduce_for_fetch_params: Annotated[
        bool, Key(aliases=("use_all_reduce_for_fetch_params",))
    ] = False
    """Gather parameters by an all-reduce, which saves copying on the host."""
    stage3_allgather_sequential: Annotated[bool, Key(aliases=("allgather_sequential",))] = False
    """Gather parameters one by one instead of in buckets: less memory at the peak."""
    sub_group_size: Annotated[int, Key(unit="elements")] = Field(1_000_000_000, ge=0)
    """Parameter elements that the optimizer of stage 3 updates at a time."""
    memory_efficient_linear: Annotated[bool, Key()] = True
    """Use DeepSpeed's own linear layer, which keeps less for the backward pass, under zero.Init."""
    override_module_apply: Annotated[bool, Key()] = True
    """Let zero.Init replace Module.apply, so that it gathers the parameters it touches."""
    leaf_module: Annotated[LeafModule | None, Key()] = Field(default=LeafModule())
    """Modules that stage 3 gathers as one piece."""

    # ZeRO++.
    zero_hpz_partition_size: Annotated[int, Key(unit="ranks")] = Field(1, ge=0)
    """Stage 3: keep a second copy of the parameters split over this many ranks, so that the backward pass
    gathers within a node; 1 keeps none."""
    zero_quantized_weights: Annotated[bool, Key()] = False
    """Stage 3: send parameters in 8 bits when they are gathered."""
    zero_quantized_nontrainable_weights: Annotated[bool, Key()] = False
    """Stage 3: also keep frozen parameters in 8 bits, for example below LoRA adapters."""
    zero_quantized_gradients: Annotated[bool, Key()] = False
    """Stage 3: send gradients quantized."""

    # Offloading.
    offload_param: Annotated[OffloadParam | None, Key()] = None
    """Keep the parameters in CPU memory or on NVMe; only acts at stage 3."""
    offload_optimizer: Annotated[OffloadOptimizer | None, Key()] = None
    """Keep and update the optimizer states on the CPU, or keep them on NVMe; for stages 1 to 3."""
    zenflow: Annotated[ZenFlow | None, Key()] = None
    """Present, even empty, it switches ZenFlow on; needs an offloaded optimizer and stage 1 or higher."""
    save_muon_momentum_buffer_in_memory: Annotated[bool, Key()] = False
    """Stage 3 with NVMe: keep Muon's momentum in memory instead of on the drive."""

    # Checkpoints.
    load_from_fp32_weights: Annotated[bool, Key()] = True
    """Stages 1 and 2: restore the float32 master weights of a checkpoint; false rebuilds them from the 16-bit
    weights."""
    elastic_checkpoint: Annotated[bool, Key()] = False
    """The old way of loading a checkpoint on another number of GPUs; stage 3 no longer has it."""
    pipeline_loading_checkpoint: Annotated[bool, Key()] = False
    """Stage 3: let the ranks load a checkpoint one after the other."""

    # For finding faults.
    log_trace_cache_warnings: Annotated[bool, Key()] = False
    """Say when the recorded order of modules at stage 3 no longer holds."""
    enable_sanity_checks: Annotated[bool, Key()] = False
    """Extra checks inside ZeRO, for finding faults; slower."""

    # Old names.
    cpu_offload: Annotated[
        bool | None, Key(status="deprecated", replacement="zero_optimization.offload_optimizer")
    ] = None
    """true stands for offload_optimizer with device "cpu"."""
    cpu_offload_param: Annotated[
        bool | None, Key(status="deprecated", replacement="zero_optimization.offload_param")
    ] = None
    """true stands for offload_param with device "cpu"."""
    cpu_offload_use_pin_memory: Annotated[
        bool | None, Key(status="deprecated", replacement="zero_optimization.offload_optimizer.pin_memory")
    ] = None
    """Has no effect any more; pin_memory of offload_optimizer and offload_param took its place."""
    stage3_gather_fp16_weights_on_model_save: Annotated[
        bool,
        Key(status="deprecated", replacement="zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    ] = False
    """The old name of stage3_gather_16bit_weights_on_model_save."""
    legacy_stage1: Annotated[bool, Key(status="deprecated")] = False
    """true asked for an older stage 1 that DeepSpeed no longer has: initialization fails."""
    mics_shard_size: Annotated[
        Any, Key(status="removed", replacement="zero_optimization.zero_hpz_partition_size")
    ] = None
    """MiCS was removed in DeepSpeed 0.19.7; zero_hpz_partition_size comes closest."""
    mics_hierarchical_params_gather: Annotated[Any, Key(status="removed")] = None
    """MiCS was removed in DeepSpeed 0.19.7."""
    zeropp_loco_param: Annotated[Any, Key(status="removed")] = None
    """LoCo was removed in DeepSpeed 0.19.8; quantized gradients work without it."""
