"""What Accelerate's DeepSpeedPlugin, through which Trainer goes too, refuses in a file or writes over; Lightning."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dsconf.config.context import CONSUMER_NAMES, HUGGING_FACE, Launch
from dsconf.config.effective import Config, Facts
from dsconf.document.node import Document, Span
from dsconf.lint.event import Event, Needs
from dsconf.lint.words import Words

INLINE = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "offload_param_nvme_path": "zero_optimization.offload_param.nvme_path",
    "offload_optimizer_nvme_path": "zero_optimization.offload_optimizer.nvme_path",
    "zero3_save_16bit_model": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}
"""Fields of a YAML's deepspeed_config that may not stand beside a config file, each with the key that it stands for."""


def file_conflict(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Fields of the YAML that it may not have beside this file."""
    context, launch = config.context, config.context.launch
    if launch is None or launch.distributed_type != "DEEPSPEED" or not context.read_by(*HUGGING_FACE):
        return
    named = launch.deepspeed.get("deepspeed_config_file")
    mine = isinstance(named, str) and _same_file(named, config.document.path)
    if not mine and context.consumer != "trainer":
        return
    fields = [f"deepspeed_config.{name}" for name in launch.deepspeed if name in INLINE]
    if launch.mixed_precision is not None:
        fields.append("mixed_precision")
    if fields:
        key = {
            "fields": Words(", ".join(fields)),
            "many": len(fields) > 1,
            "launch": launch.file,
            "known": context.consumer is not None or mine,
        }
        paths = [INLINE[name] for name in launch.deepspeed if name in INLINE]
        entry = next((entry for path in paths if (entry := config.entry(path))), None)
        span = (
            entry.span
            if entry
            else config.document.root.span._replace(end=config.document.root.span.start + 1)
        )
        path = next((path for path in paths if config.entry(path)), "")
        yield Event("accelerate-ds-file-conflict", path, span, key, (), tuple(_places(launch, fields)))


def _places(launch: Launch, fields: list[str]) -> Iterator[tuple[Document, Span, str]]:
    """Where fields stand in the file of `accelerate launch`."""
    document: Document | None = launch.document
    if document is None:
        return
    for field in fields:
        entry = document.entry((*field.split("."),))
        if entry is not None:
            yield document, entry.span, "said here"


def _same_file(one: str, other: str) -> bool:
    return os.path.basename(one) == os.path.basename(other)  # noqa: PTH119  start-up time


def precision_conflict(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Another precision enabled than the launch configuration asks for."""
    launch = config.context.launch
    if launch is None or not config.context.read_by("accelerate"):
        return
    wanted = str(launch.mixed_precision).lower()
    other = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}.get(wanted)
    entry = config.document.entry((other, "enabled")) if other else None
    if entry is not None and str(entry.node.plain()).lower() == "true":
        key = {"wanted": wanted, "other": other, "launch": launch.file}
        places = tuple(_places(launch, ["mixed_precision"]))
        yield Event("accelerate-precision-conflict", f"{other}.enabled", entry.span, key, (), places)


def precision_overruled(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """A precision that the file decides otherwise than the launch configuration, which gives way."""
    launch = config.context.launch
    if launch is None or launch.mixed_precision is None or not config.context.read_by("accelerate"):
        return
    wanted = "no" if launch.mixed_precision is False else str(launch.mixed_precision).lower()
    for name in ("fp16", "bf16"):
        entry = config.document.entry((name, "enabled"))
        enabled = entry.node.scalar if entry is not None else None
        if entry is None or (wanted, enabled) not in ((name, False), ("no", True)):
            continue
        trains = name if enabled else "fp32"
        key = {
            "wanted": wanted,
            "launch": launch.file,
            "name": f"{name}.enabled",
            "written": enabled,
            "trains": trains,
        }
        places = tuple(_places(launch, ["mixed_precision"]))
        yield Event("accelerate-precision-overruled", f"{name}.enabled", entry.span, key, (), places)


def needs_zero_block(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """No zero_optimization at all."""
    root = config.document.root
    absent = "zero_optimization" not in root.members() and not config.may_hold("zero_optimization")
    if config.context.consumer in HUGGING_FACE and absent:
        yield Event(
            "accelerate-needs-zero-block",
            "zero_optimization",
            Span(root.span.start, root.span.start + 1),
            {"file": None},
        )


def alias_section(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """bfloat16, beside which the plugin writes a bf16 that is off."""
    entry = config.document.entry(("bfloat16", "enabled"))
    # With Trainer the precision is known from its arguments, with Accelerate from the launch configuration.
    may_be_there = "bf16" in config.document.root.members() or config.document.root.open
    if may_be_there or config.fills.get("bf16.enabled") is not False:
        return
    if entry is not None and entry.node.scalar is True:
        yield Event("alias-section-unread", "bf16.enabled", entry.span, {})


def lightning_accumulation(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """gradient_accumulation_steps in a file for Lightning."""
    entry = config.document.entry(("gradient_accumulation_steps",))
    if config.context.consumer == "lightning" and entry is not None:
        yield Event("lightning-gas-key", "gradient_accumulation_steps", entry.span, {})


def overwritten_key(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Keys whose value never reaches DeepSpeed."""
    context = config.context
    if context.consumer not in HUGGING_FACE:
        return
    reader = CONSUMER_NAMES[context.consumer]
    steps = config.document.entry(("steps_per_print",))
    if steps is not None and steps.node.scalar != "auto":
        key = {
            "name": "steps_per_print",
            "value": "infinity",
            "reader": reader,
            "written": steps.node.plain(),
        }
        yield Event("overwritten-key", "steps_per_print", steps.span, key)
    untested = config.document.entry(("zero_allow_untested_optimizer",))
    forced = context.consumer == "trainer" and config.document.entry(("optimizer",)) is None
    if forced and untested is not None and untested.node.scalar is False:
        name = "zero_allow_untested_optimizer"
        key = {"name": name, "value": "true", "reader": reader, "written": False}
        yield Event("overwritten-key", name, untested.span, key)
