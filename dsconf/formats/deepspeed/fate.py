"""DeepSpeed keys that have no place in the Plan, and what a translation makes of each."""

from __future__ import annotations

from typing import NamedTuple

from dsconf.formats.outcome import Outcome

TRAFFIC = "a hint on how DeepSpeed groups and times its traffic: it changes no number"
LOGGING = "logging: record losses, norm and lr in your script"
_MONITOR = "it records: DeepSpeed's monitor has Train/Samples/train_loss and lr, over samples"
_RECORD = "record losses, norm and lr with the monitor's own library, or by Trainer's report_to"
_CALLED = "it acts only where the model calls deepspeed.checkpointing"
_RECOMPUTE = "where the model calls deepspeed.checkpointing, use torch.utils.checkpoint instead"
_COMPILED = (
    "DeepCompile acts only where the script calls engine.compile(), and on speed, not on what is trained"
)
_OFF = (False, None)


class Fate(NamedTuple):
    """What becomes of a key (or a whole section): `otherwise`, or no effect where its value is one of `inert`."""

    otherwise: Outcome
    note: str
    inert: tuple[object, ...] = ()
    action: str | None = None


def _hints(prefix: str, names: str, note: str = TRAFFIC) -> dict[str, Fate]:
    return {f"{prefix}{name}": Fate("no-effect", note) for name in names.split()}


_ZERO = "zero_optimization."
NVME = "FSDP2 has no offload to NVMe"
_ON_CPU = "it acts on NVMe only"
_RECOMPUTED = "activation_checkpointing."
_TENSOR = "tensor_parallel."
_OFFLOAD_ALL = "use offload_optimizer and offload_param of zero_optimization instead"
MONITORS = ("tensorboard", "wandb", "comet", "csv_monitor")

FATES: dict[str, Fate] = {
    **_hints(
        _ZERO,
        "allgather_bucket_size allgather_partitions reduce_bucket_size reduce_scatter overlap_comm "
        "contiguous_gradients round_robin_gradients sub_group_size stage3_max_live_parameters "
        "stage3_max_reuse_distance stage3_prefetch_bucket_size stage3_param_persistence_threshold "
        "stage3_model_persistence_threshold stage3_module_granularity_threshold stage3_allgather_sequential "
        "stage3_use_all_reduce_for_fetch_params use_multi_rank_bucket_allreduce parameter_alignment",
    ),
    **_hints(
        _ZERO,
        "elastic_checkpoint load_from_fp32_weights pipeline_loading_checkpoint",
        "how DeepSpeed reads its own checkpoints, which PyTorch does not read",
    ),
    **_hints(
        _ZERO,
        "enable_sanity_checks log_trace_cache_warnings override_module_apply save_muon_momentum_buffer_in_memory "
        "cpu_offload_use_pin_memory ignore_unused_parameters legacy_stage1 leaf_module.classes leaf_module.names "
        "leaf_module.name_suffixes",
        "an internal of DeepSpeed's engine: it changes no number",
    ),
    **_hints(
        "",
        "disable_allgather allgather_size seq_parallel_communication_data_type prescale_gradients",
    ),
    "wall_clock_breakdown": Fate("no-effect", "it measures", _OFF, "use torch.profiler in your script"),
    **_hints("", "steps_per_print dump_state memory_breakdown log_level", LOGGING),
    **_hints("", "timers", LOGGING),
    **{name: Fate("no-effect", _MONITOR, action=_RECORD) for name in MONITORS},
    "flops_profiler": Fate(
        "no-effect", "it measures", action="use torch.utils.flop_counter.FlopCounterMode in your script"
    ),
    "comms_logger": Fate(
        "no-effect",
        "it measures",
        action="use torch.distributed.tensor.debug.CommDebugMode or torch.profiler in your script",
    ),
    **_hints(
        "",
        "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer disable_python_gc managed_gradient_accumulation "
        "use_data_before_expert_parallelism vocabulary_size autotuning datastates_ckpt checkpoint aio",
        "it acts inside DeepSpeed only, not on the numbers of training",
    ),
    "dataloader_drop_last": Fate(
        "no-effect",
        "it concerns the data loader that DeepSpeed builds",
        (),
        "set drop_last in your DataLoader (Trainer's dataloader_drop_last)",
    ),
    f"{_RECOMPUTED}partition_activations": Fate(
        "no-effect", f"{_CALLED}; FSDP2 does not divide activations over ranks", _OFF, _RECOMPUTE
    ),
    f"{_RECOMPUTED}cpu_checkpointing": Fate(
        "no-effect",
        _CALLED,
        _OFF,
        f"{_RECOMPUTE}, inside torch.autograd.graph.save_on_cpu() to keep its inputs on the CPU",
    ),
    **_hints(
        _RECOMPUTED,
        "contiguous_memory_optimization number_checkpoints synchronize_checkpoint_boundary profile",
        f"{_CALLED}, and on no number",
    ),
    "pipeline": Fate(
        "no-effect",
        "the section acts on a PipelineModule only",
        action="a PipelineModule can't be translated",
    ),
    **_hints(
        _ZERO,
        "stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save",
        "it says how weights are saved, not what they are",
    ),
    **_hints(
        f"{_ZERO}offload_param.",
        "nvme_path buffer_count buffer_size max_in_cpu",
        _ON_CPU,
    ),
    **_hints(
        f"{_ZERO}offload_optimizer.",
        "nvme_path buffer_count pipeline_read pipeline_write fast_init",
        _ON_CPU,
    ),
    f"{_ZERO}offload_optimizer.ratio": Fate(
        "approximate", "CPUOffloadPolicy has no share: the CPU updates all parameters", (1, 1.0)
    ),
    f"{_ZERO}offload_optimizer.super_offload": Fate(
        "approximate", "plain CPU offload takes its place: slower, with the same numbers", (False,)
    ),
    f"{_ZERO}offload_optimizer.cpuadam_cores_perc": Fate("no-effect", "how DeepSpeed divides the CPU cores"),
    f"{_ZERO}offload_param.device": Fate("no-effect", "nothing is offloaded"),
    f"{_ZERO}offload_optimizer.device": Fate("no-effect", "nothing is offloaded"),
    f"{_ZERO}cpu_offload": Fate("no-effect", "nothing is offloaded"),
    f"{_ZERO}cpu_offload_param": Fate("no-effect", "nothing is offloaded"),
    f"{_ZERO}zero_hpz_partition_size": Fate(
        "no-effect", "hpZ acts at stage 3, in groups of more than one GPU"
    ),
    f"{_ZERO}zero_quantized_weights": Fate(
        "unsupported", "FSDP2 has no quantized all-gather of weights", (False,)
    ),
    f"{_ZERO}zero_quantized_nontrainable_weights": Fate(
        "unsupported", "FSDP2 has no quantized all-gather of weights", (False,)
    ),
    f"{_ZERO}zero_quantized_gradients": Fate("unsupported", "FSDP2 has no quantized reduction", (False,)),
    f"{_ZERO}memory_efficient_linear": Fate(
        "no-effect", "torch's F.linear runs, as in this run of DeepSpeed"
    ),
    f"{_ZERO}zenflow": Fate("unsupported", "ZenFlow exists in DeepSpeed only"),
    f"{_ZERO}compute_grad_norm": Fate("unsupported", "the norm is computed in any case", (True,)),
    **_hints(
        "fp16.",
        "loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale",
        "only dynamic loss scaling reads it",
    ),
    "fp16.auto_cast": Fate("no-effect", "inputs stay as they are"),
    "fp16.fp16_master_weights_and_grads": Fate("no-effect", "the masters are in fp32"),
    "bf16.bf16_master_weights_and_grads": Fate("no-effect", "the masters are in fp32"),
    "bf16.bf16_optimizer_states": Fate("no-effect", "they have the dtype of the masters, fp32"),
    "bf16.immediate_grad_update": Fate("no-effect", "only DeepSpeed's BF16_Optimizer reads it, at stage 1"),
    "bf16.check_grad_overflow": Fate(
        "no-effect", "a step whose norm is not finite is left out, whatever this says"
    ),
    "torch_autocast.enabled": Fate("no-effect", "it is off"),
    "data_types.buffer_dtype": Fate("no-effect", "buffers stay as they were loaded"),
    "data_types.param_dtype": Fate("no-effect", "it has to be the dtype that the precision section gives"),
    "data_types.keep_in_fp32_modules": Fate("no-effect", "buffers stay as they were loaded"),
    "gradient_predivide_factor": Fate(
        "no-effect", "it divides before the reduction and multiplies after it: the mean stays"
    ),
    "sequence_parallel_size": Fate(
        "unsupported",
        "sequence parallelism is not translated",
        (1, None),
        "divide the sequence with torch.distributed.tensor.experimental.context_parallel in your script",
    ),
    "data_parallel_size": Fate(
        "unsupported",
        "a mesh of DeepSpeed's is not translated",
        (None,),
        "it stands beside sequence_parallel_size only: leave both out",
    ),
    f"{_TENSOR}autotp_size": Fate("no-effect", "no layer is divided"),
    f"{_TENSOR}preset_model": Fate(
        "no-effect", "the plan of transformers says which layers are divided; it changes no number"
    ),
    f"{_TENSOR}partition_config": Fate(
        "unsupported",
        "layers are divided as the plan of transformers has them",
        (None, {}),
        "--set tensor_parallel.partition_config=null takes the plan of transformers",
    ),
    f"{_TENSOR}vocab_parallel_lm_head": Fate(
        "approximate", "logits are gathered on each rank, which takes more memory; no number changes", _OFF
    ),
    **_hints(
        _TENSOR,
        "tp_overlap_comm vocab_parallel_ce_backend keep_module_on_host tp.tp_grain_size",
        "how DeepSpeed divides and times it: it changes no number",
    ),
    f"{_TENSOR}tp.tp_size": Fate("no-effect", "it has to be 1, or what autotp_size is"),
    f"{_TENSOR}kernel_inject": Fate("unsupported", "kernels of DeepSpeed's inference engine", (False,)),
    "expert_parallel": Fate(
        "unsupported",
        "expert parallelism is not translated",
        (),
        "--set expert_parallel.enabled=false shards each expert over all ranks, as ZeRO does: the same numbers",
    ),
    "compile.deepcompile": Fate(
        "no-effect", _COMPILED, _OFF, "compile each block before it is sharded: block.compile()"
    ),
    **_hints(
        "compile.",
        "passes autoep_non_moe free_activation free_activation_threshold offload_activation_pin_memory "
        "double_buffer symmetric_memory sync_before_reduce sync_after_reduce sync_before_allgather "
        "sync_after_allgather keep_int_input_tensors keep_all_input_tensors debug_log",
        _COMPILED,
    ),
    "compile.offload_activation": Fate(
        "unsupported",
        "DeepCompile moves activations to the CPU",
        _OFF,
        "run the forward inside torch.autograd.graph.save_on_cpu(), and --set compile.offload_activation=false",
    ),
    "compile.offload_opt_states": Fate(
        "unsupported", "DeepCompile moves optimizer states to the CPU", _OFF, _OFFLOAD_ALL
    ),
    "compile.offload_parameters": Fate(
        "unsupported", "DeepCompile moves parameters to the CPU", _OFF, _OFFLOAD_ALL
    ),
    "hybrid_engine": Fate("unsupported", "the hybrid engine exists in DeepSpeed only"),
    "weight_quantization": Fate("unsupported", "weight quantization is not translated"),
    "data_efficiency": Fate("unsupported", "DeepSpeed's data efficiency library is not translated"),
    "optimizer.legacy_fusion": Fate("no-effect", "only DeepSpeed's fp16 optimizer of stage 0 reads it"),
    "optimizer.params.torch_adam": Fate("no-effect", "which kernel computes AdamW: torch's does"),
    "optimizer.params.foreach": Fate("no-effect", "how torch loops over the parameters"),
    "optimizer.params.capturable": Fate("no-effect", "how torch loops over the parameters"),
    "optimizer.params.differentiable": Fate("no-effect", "how torch loops over the parameters"),
    "optimizer.params.fused": Fate("no-effect", "how torch loops over the parameters"),
    "optimizer.params.adam_w_mode": Fate("no-effect", "AdamW ignores it, and Muon's Adam follows it"),
    "optimizer.params.set_grad_none": Fate(
        "no-effect", "zero_grad() frees the gradients, as torch does by default"
    ),
    "optimizer.params.fp32_optimizer_states": Fate("no-effect", "only DeepSpeed's CPU optimizers read it"),
    "optimizer.params.bias_correction": Fate("unsupported", "AdamW without bias correction", (True,)),
    "optimizer.params.amsgrad": Fate("unsupported", "amsgrad is not translated yet", (False,)),
    "optimizer.params.ns_method": Fate(
        "approximate", "torch's Muon has the standard iteration, with the same coefficients"
    ),
    "optimizer.params.per_head_muon": Fate("no-effect", "it is off"),
    "optimizer.params.max_grad_norm": Fate(
        "rejected-by-source", "DeepSpeed refuses it", action="write gradient_clipping at the top level"
    ),
    "scheduler.params.last_batch_iteration": Fate("unsupported", "a first step other than 0", (-1,)),
}
"""By path. A row for a section holds for all its keys."""

SWITCHED = {
    "zero_optimization.offload_param": ("zero_optimization.offload_param.device", "none"),
    "zero_optimization.offload_optimizer": ("zero_optimization.offload_optimizer.device", "none"),
    "fp16": ("fp16.enabled", False),
    "bf16": ("bf16.enabled", False),
    "torch_autocast": ("torch_autocast.enabled", False),
    "compile": ("compile.deepcompile", False),
}
"""Sections that act only while a key has another value than the one named."""

ENABLED = {
    **{name: (f"{name}.enabled",) for name in (*MONITORS, "flops_profiler")},
    "hybrid_engine": ("hybrid_engine.enabled",),
    "expert_parallel": ("expert_parallel.enabled",),
    # Nothing reads data_efficiency.enabled.
    "data_efficiency": (
        "data_efficiency.data_sampling.curriculum_learning.enabled",
        "data_efficiency.data_routing.random_ltd.enabled",
    ),
}
"""Sections that act only where one of these keys is on."""
