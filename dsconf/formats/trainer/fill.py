"""What Trainer (transformers 5.24) puts where a DeepSpeed config says "auto", and compares where it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dsconf.config.context import Context
from dsconf.document.node import UNKNOWN, Document
from dsconf.formats.training.defaults import DEFAULTS


class Match(NamedTuple):
    """A key that Trainer fills, or else compares with an argument of its own."""

    path: str
    value: object
    """What it puts there and compares with, UNKNOWN where the arguments don't determine it."""
    argument: str
    """Where the value comes from, in words."""


class Arguments:
    """TrainingArguments as far as they are given; what is of another type than the argument is unknown."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def given(self, name: str) -> bool:
        """Whether it is given at all."""
        return name in self._given

    def get(self, name: str) -> Any:
        """The value of an argument, or UNKNOWN."""
        default = DEFAULTS[name]
        value = self._given.get(name, default)
        fits = isinstance(value, bool) if isinstance(default, bool) else _is_number(value)
        return value if fits else UNKNOWN


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _product(*factors: Any) -> object:
    return UNKNOWN if any(factor is UNKNOWN for factor in factors) else math.prod(factors)


def _either(one: object, other: object) -> object:
    """`one or other` of booleans, either of which may be unknown."""
    if one is True or other is True:
        return True
    return UNKNOWN if one is UNKNOWN or other is UNKNOWN else False


def _warmup_steps(arguments: Arguments, steps: object) -> object:
    warmup = arguments.get("warmup_steps")
    if warmup is UNKNOWN or arguments.given("warmup_ratio"):  # an argument of older releases
        return UNKNOWN
    if warmup >= 1:
        return int(warmup)
    if warmup == 0:
        return 1
    return max(1, math.ceil(steps * warmup)) if isinstance(steps, int) else UNKNOWN


def matches(given: Mapping[str, Any], world_size: int | None) -> list[Match]:
    """Every key that Trainer compares, in its order."""
    arguments = Arguments(given)
    get = arguments.get
    steps = get("max_steps")
    steps = steps if isinstance(steps, int) and steps > 0 else UNKNOWN
    micro, accumulation = get("per_device_train_batch_size"), get("gradient_accumulation_steps")
    world = UNKNOWN if world_size is None else world_size
    betas = [get("adam_beta1"), get("adam_beta2")]
    total = "per_device_train_batch_size x gradient_accumulation_steps x GPUs"
    plain = {
        "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "gradient_clipping": "max_grad_norm",
        "optimizer.params.lr": "learning_rate",
        "optimizer.params.eps": "adam_epsilon",
        "optimizer.params.weight_decay": "weight_decay",
        "scheduler.params.warmup_max_lr": "learning_rate",
    }
    return [
        *(Match(path, get(name), name) for path, name in plain.items()),
        Match("train_batch_size", _product(world, micro, accumulation), total),
        Match("optimizer.params.betas", UNKNOWN if UNKNOWN in betas else betas, "adam_beta1, adam_beta2"),
        Match("fp16.enabled", _either(get("fp16"), get("fp16_full_eval")), "fp16 or fp16_full_eval"),
        Match("bf16.enabled", _either(get("bf16"), get("bf16_full_eval")), "bf16 or bf16_full_eval"),
        Match("scheduler.params.total_num_steps", steps, "max_steps"),
        Match(
            "scheduler.params.warmup_num_steps", _warmup_steps(arguments, steps), "warmup_steps, at least 1"
        ),
    ]


def differing(document: Document, given: Mapping[str, Any], world_size: int | None) -> list[Match]:
    """The matches that the file contradicts, as Trainer compares: plainly, by the canonical spelling only."""
    return [
        match
        for match in matches(given, world_size)
        if (entry := document.entry((*match.path.split("."),))) is not None
        and entry.node.kind not in ("null", "unknown")
        and UNKNOWN not in (match.value, entry.node.plain())
        and entry.node.scalar != "auto"
        and entry.node.plain() != match.value
    ]


def fills(context: Context) -> dict[str, object]:
    """The value of each key that can be known without the script, by path."""
    found: dict[str, object] = {"scheduler.params.warmup_min_lr": 0}
    if context.training_args is not None:
        found |= {
            match.path: match.value
            for match in matches(context.training_args, context.world_size)
            if match.value is not UNKNOWN
        }
    return found
