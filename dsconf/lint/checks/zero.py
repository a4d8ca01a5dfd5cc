"""Keys of `zero_optimization` that act at stage 3 only, and checkpoints of another number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config, Facts
from dsconf.document.node import Span
from dsconf.lint.event import Event, Needs

_STAGE3 = ("leaf_module", "log_trace_cache_warnings", "save_muon_momentum_buffer_in_memory", "sub_group_size")
"""Those that do not say it by their names."""


def stage3_keys(config: Config, facts: Facts) -> Iterator[Event]:
    """One event for all of them together: files that are used with several stages carry many."""
    stage = config.value("zero_optimization.stage")
    if stage not in (0, 1, 2):
        return
    found = [item for item in config.written if is_for_stage3(item.path) and item.spec is not None]
    if found:
        names = ", ".join(item.entry.key for item in found)
        key = {"names": names, "many": len(found) > 1, "stage": stage}
        others = tuple((item.entry.key_span, "and this") for item in found[1:])
        yield Event("stage3-keys", found[0].path, found[0].entry.key_span, key, others)


def is_for_stage3(path: str) -> bool:
    """Whether a path is a key of `zero_optimization` that acts at stage 3 only, and has no rule of its own."""
    section, _, name = path.rpartition(".")
    # The old name of the gather key has a rule of its own.
    if section != "zero_optimization" or name == "stage3_gather_fp16_weights_on_model_save":
        return False
    return name.startswith("stage3_") or name in _STAGE3


def resume_world_size(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Whether ZeRO's optimizer states are loaded on as many GPUs as wrote them; only where a run is said to resume."""
    before, now = config.context.resume_world_size, config.context.world_size
    stage, universal = config.value("zero_optimization.stage"), config.value("checkpoint.load_universal")
    device = config.value("zero_optimization.offload_optimizer.device")
    # Stage 3 on NVMe copies the files of each rank and compares no number.
    if (
        before is None
        or stage not in (1, 2, 3)
        or universal is not False
        or (stage == 3 and device == "nvme")
    ):
        return
    if now is None:
        yield Needs("resume-world-size", "world_size")
    elif now != before:
        path = "zero_optimization.stage"
        entry = config.entry(path)
        start = config.document.root.span.start
        span = entry.span if entry else Span(start, start + 1)
        yield Event("resume-world-size", path, span, {"before": before, "now": now})
