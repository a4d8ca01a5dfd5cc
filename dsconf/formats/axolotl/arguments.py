"""The arguments of Trainer that Axolotl makes of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsconf.config.effective import Config
from dsconf.document.node import UNKNOWN

NAMES = {
    "per_device_train_batch_size": "micro_batch_size",
    "optim": "optimizer",
    "lr_scheduler_type": "lr_scheduler",
    "num_train_epochs": "num_epochs",
}
"""By argument of Trainer the key that Axolotl has for it, where that is called otherwise."""

DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 1,
    "lr_scheduler_type": "cosine",
    "num_train_epochs": 1.0,
}
"""What Axolotl has where nothing is written, other than Trainer."""

ROUNDS_DOWN = "of a part of all steps Axolotl makes a whole number by rounding down, Trainer by rounding up"

_COSINE = "cosine_with_min_lr"
_PART, _MOST = 0.03, 100
"""Of all steps, and steps at most: the warm-up where nothing is written."""


def given(config: Config) -> dict[str, object]:
    """The arguments that are given, by Trainer's names."""
    written = dict.fromkeys([*(item.path for item in config.written), *config.overrides])
    found = {path: config.raw(path) for path in written if "." not in path}
    for argument, key in NAMES.items():
        if key in found:
            found[argument] = found.pop(key)
    last = found.get("cosine_min_lr_ratio")
    if last and found.get("lr_scheduler_type", DEFAULTS["lr_scheduler_type"]) == "cosine":
        found |= {"lr_scheduler_type": _COSINE, "lr_scheduler_kwargs": {"min_lr_rate": last}}
    if found.get("fp16") and _on(found.get("bf16")):
        found["fp16"] = False
    return found


def warmup(arguments: Mapping[str, object]) -> int | None:
    """Steps of warm-up as Axolotl counts them from max_steps; None where they depend on the data, or stand there."""
    total = arguments.get("max_steps")
    if not isinstance(total, int) or total <= 0 or arguments.get("warmup_steps") is not None:
        return None
    ratio = arguments.get("warmup_ratio")
    if ratio is None:
        return min(int(_PART * total), _MOST)
    return int(ratio * total) if isinstance(ratio, int | float) else None


def _on(value: object) -> bool:
    return value is not UNKNOWN and bool(value)
