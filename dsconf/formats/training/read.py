"""Batch sizes, clipping, and the arguments that go nowhere."""

from __future__ import annotations

from dsconf.formats.fsdp_precision import Word
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.reading import Remark
from dsconf.formats.training.arguments import Given
from dsconf.plan import Batch, Clipping, Sharding, Unresolved

_LATE = Remark(
    "close",
    "Trainer keeps whole gradients from one micro batch to the next, and reduces them on the last one",
)


def as_reduced(sharding: Sharding, batch: Batch, *, each: bool) -> Sharding:
    """What is divided where gradients are reduced on `each` micro batch; else on the last one, and whole until then."""
    if sharding.partition == "gradients" and not each and batch.accumulation != 1:
        return sharding.model_copy(update={"partition": "optimizer"})
    return sharding


def read_batch(given: Given, *, keeps: bool) -> Batch:
    """The batch sizes; `keeps`: whether gradients are whole between micro batches, though parameters are divided."""
    given.place("per_device_train_batch_size", "batch.micro", in_force=True)
    given.place("gradient_accumulation_steps", "batch.accumulation")
    steps = given.whole("gradient_accumulation_steps")
    if keeps and steps != 1:
        given.remark("gradient_accumulation_steps", _LATE)
    return Batch(micro=given.whole("per_device_train_batch_size"), accumulation=steps)


def read_clipping(given: Given) -> Clipping:
    """The norm that gradients are clipped to; 0 clips nothing."""
    given.place("max_grad_norm", "clipping.max_norm", in_force=True)
    norm = given.number("max_grad_norm")
    if isinstance(norm, Unresolved):
        return Clipping(max_norm=norm)
    return Clipping(max_norm=float(norm) if norm > 0 else None, skips_not_finite=False)


def read_word(given: Given) -> Word | Unresolved:
    """The mixed precision."""
    for name in ("bf16", "fp16"):
        given.place(name, "precision.compute")
    for name in ("fp16", "bf16"):
        on = given.flag(name)
        if isinstance(on, Unresolved):
            return on
        if on:
            other = "bf16" if name == "fp16" else "fp16"
            if given.flag(other) is False:
                given.fields.pop(given.key(other))
                given.idle("it is off", other)
            return "fp16" if name == "fp16" else "bf16"
    return "no"


_SPEED = "it changes the speed of a step, not what is trained"
_DATA = "which samples come when is up to the script"
_OWN = "it is about logging, evaluation or saving, and changes no training"

_NAMES: dict[str, tuple[Outcome, str, str | None]] = {
    "torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps use_cache": (
        "no-effect", _SPEED, None,
    ),
    "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph": (
        "no-effect", "DDP alone reads it", None,
    ),
    "ddp_backend ddp_timeout local_rank use_cpu": (
        "no-effect", "how processes find each other is up to the launcher", None,
    ),
    """
    dataloader_drop_last dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers
    dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order remove_unused_columns
    label_names train_sampling_strategy length_column_name group_by_length ignore_data_skip
    """: ("no-effect", _DATA, None),
    "seed data_seed full_determinism": ("no-effect", "the seed is up to the script", None),
    "activation_checkpointing_kwargs gradient_checkpointing_kwargs": (
        "no-effect", "how activations are computed again changes no number", None,
    ),
    "average_tokens_across_devices": (
        "no-effect", "how losses of different lengths are weighed is up to the script", None,
    ),
    """
    output_dir overwrite_output_dir bf16_full_eval fp16_full_eval logging_strategy logging_steps logging_first_step
    logging_dir log_on_each_node logging_nan_inf_filter include_num_input_tokens_seen log_level log_level_replica
    disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id
    eval_strategy evaluation_strategy eval_steps eval_delay per_device_eval_batch_size prediction_loss_only
    eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
    batch_eval_metrics save_only_model save_strategy save_steps save_on_each_node save_total_limit save_safetensors
    enable_jit_checkpoint push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push
    hub_revision load_best_model_at_end metric_for_best_model greater_is_better debug skip_memory_metrics
    do_train do_eval do_predict resume_from_checkpoint restore_callback_states_from_checkpoint
    """: ("no-effect", _OWN, None),
    "use_liger_kernel liger_kernel_config": (
        "close", "its kernels round differently, and no translation calls them", None,
    ),
    "tf32": (
        "close", "matrices are multiplied in TF32",
        "set torch.backends.cuda.matmul.allow_tf32 = True in your script",
    ),
    "neftune_noise_alpha": ("unsupported", "noise on the embeddings of each batch", "add it in your script"),
    "label_smoothing_factor": (
        "unsupported", "the labels are smoothed", "smooth them in your loss function",
    ),
    "optim_target_modules": ("unsupported", "only parts of the model are optimized so", None),
    "auto_find_batch_size": (
        "approximate", "the batch size is halved until it fits, which no translation does",
        "write the batch size that fits",
    ),
}  # fmt: skip
"""Arguments without a place in a Plan: what becomes of those that are on, why, and what to do."""

FATES: dict[str, tuple[Outcome, str, str | None]] = {
    name: fate for names, fate in _NAMES.items() for name in names.split()
}
"""The same, by argument; a few are of older releases."""


def leftover(given: Given, name: str) -> None:
    """What becomes of an argument without a place; one that is off does nothing."""
    outcome, note, action = FATES[name]
    raw = given.raw(name)
    off = outcome != "no-effect" and not raw
    item = (
        Item(name, raw, "no-effect", note="it is off") if off else Item(name, raw, outcome, "", note, action)
    )
    given.item(item)
