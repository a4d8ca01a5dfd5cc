"""Keys of Axolotl that have no place in the Plan, and what a translation makes of each."""

from __future__ import annotations

from dsconf.formats.fsdp_section import Fate

_SAMPLES = "what is trained on which data, and what is logged, is up to the script"
OWN = Fate("no-effect", _SAMPLES)
"""For the hundreds of keys that are not named here."""
_RATES = Fate(
    "unsupported", "parts of the model have a learning rate of their own", "build these groups in your script"
)
_ADAPTER = Fate(
    "no-effect", "which weights train is decided where the model is built: what is sharded is what it has"
)
_QUANTIZED = Fate("unsupported", "weights in 4 or 8 bits are not translated", "load them so in your script")
_FP8 = Fate("unsupported", "8-bit training is not translated: what is written trains in 16 bits")
_WARM = Fate("unsupported", "the warm-up is quadratic, which no other trainer has")
_RESTARTS = Fate("unsupported", "the schedule starts anew again and again", "build it in your script")
_OFFLOADED = Fate(
    "unsupported", "activations or layers rest in CPU memory, which no translation writes",
    "put the forward pass in torch.autograd.graph.save_on_cpu()",
)  # fmt: skip
_NOISE = Fate("unsupported", "noise on the embeddings of each batch", "add it in your script")

FATES: dict[str, Fate] = {
    "adapter": _ADAPTER,
    **dict.fromkeys(("load_in_8bit", "load_in_4bit"), _QUANTIZED),
    **dict.fromkeys(("embedding_lr", "embedding_lr_scale", "lr_groups", "loraplus_lr_ratio"), _RATES),
    **dict.fromkeys(("fp8", "fp8_enable_fsdp_float8_all_gather"), _FP8),
    "lr_quadratic_warmup": _WARM,
    "cosine_constant_lr_ratio": Fate("unsupported", "the cosine stops before the end of the run"),
    **dict.fromkeys(("jagged_restart_steps", "relora", "relora_steps", "relora_prune_ratio"), _RESTARTS),
    **dict.fromkeys(("activation_offloading", "layer_offloading"), _OFFLOADED),
    **dict.fromkeys(("neftune_noise_alpha", "noisy_embedding_alpha"), _NOISE),
    "expert_parallel_size": Fate("unsupported", "experts are divided over ranks, which is not translated"),
    "batch_size": Fate("no-effect", "micro_batch_size and gradient_accumulation_steps say it"),
}  # fmt: skip
"""What becomes of a key that is on."""
