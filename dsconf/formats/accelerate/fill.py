"""What Accelerate 1.15 puts where a DeepSpeed config says "auto"; Trainer goes through it too."""

from __future__ import annotations

from dsconf.config.context import Context

PLUGIN: dict[str, object] = {
    "zero_optimization.stage": 2,
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
    "zero_optimization.offload_param.device": "none",
    "zero_optimization.offload_param.nvme_path": "none",
    "zero_optimization.offload_optimizer.device": "none",
    "zero_optimization.offload_optimizer.nvme_path": "none",
}
"""The defaults of a DeepSpeedPlugin, of which none can be set beside a config file."""
SIZES = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
"""Keys of zero_optimization that are filled by the size of the model."""
PRECISIONS = {"no": None, "fp16": "fp16.enabled", "bf16": "bf16.enabled", "fp8": "bf16.enabled"}
"""By mixed_precision the key that becomes true."""


def by_size(hidden_size: int) -> dict[str, object]:
    """The values of SIZES, by path."""
    square = hidden_size * hidden_size
    values = (square, int(0.9 * hidden_size * hidden_size), 10 * hidden_size)
    return {f"zero_optimization.{name}": value for name, value in zip(SIZES, values, strict=True)}


def fills(context: Context) -> dict[str, object]:
    """The value of each key that can be known without the script, by path."""
    found = {**PLUGIN}
    if context.model is not None and context.model.hidden_size is not None:
        found |= by_size(context.model.hidden_size)
    if context.consumer == "accelerate":
        found["gradient_clipping"] = 1.0
        launch = context.launch
        precision = launch.mixed_precision if launch else None
        if launch is not None and isinstance(precision, str) and precision.lower() in PRECISIONS:
            on = PRECISIONS[precision.lower()]
            found |= {path: path == on for path in ("fp16.enabled", "bf16.enabled")}
    return found
