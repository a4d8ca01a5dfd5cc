"""Training arguments against the file that Trainer reads with them."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.event import Event, Needs
from dsconf.lint.words import Words

_ADAMW = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla")
_SAME_OPTIMIZER = {
    "adamw": _ADAMW,
    "adam": _ADAMW,
    "sgd": ("sgd",),
    "adagrad": ("adagrad",),
    "rmsprop": ("rmsprop",),
}
"""By `optimizer.type` what `optim` may say and mean the same."""
_SAME_SCHEDULE = {
    "WarmupLR": ("constant_with_warmup", "constant"),
    "WarmupDecayLR": ("linear",),
    "WarmupCosineLR": ("cosine",),
}
"""By `scheduler.type` what `lr_scheduler_type` may say and mean the same."""


def mismatch(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Every value that Trainer would compare with an argument, and find different."""
    context = config.context
    if context.training_args is None:
        if context.consumer == "trainer":
            yield Needs("hf-args-mismatch", "training_args")
        return
    if not context.read_by("trainer"):
        return
    from dsconf.formats.trainer.fill import differing  # only with arguments

    for match in differing(config.document, context.training_args, context.world_size):
        entry = config.document.entry((*match.path.split("."),))
        assert entry is not None
        key = {
            "path": match.path,
            "written": entry.node.plain(),
            "text": isinstance(entry.node.scalar, str),
            "argument": match.argument,
            "value": match.value,
            "known": context.consumer is not None,
            "guessed": Words(context.guessed),
        }
        yield Event("hf-args-mismatch", match.path, entry.span, key)
    total = config.document.entry(("train_batch_size",))
    if context.world_size is None and total is not None and total.node.scalar != "auto":
        yield Needs("hf-args-mismatch", "world_size")


def optimizer_overrides(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """An optimizer section beside another `optim`."""
    yield from _overrides(config, "optimizer", "optim", _SAME_OPTIMIZER)


def scheduler_overrides(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """A scheduler section beside another `lr_scheduler_type`."""
    yield from _overrides(config, "scheduler", "lr_scheduler_type", _SAME_SCHEDULE)


def _overrides(
    config: Config, section: str, argument: str, same: dict[str, tuple[str, ...]]
) -> Iterator[Event | Needs]:
    given = (config.context.training_args or {}).get(argument)
    kind, entry = config.raw(f"{section}.type"), config.entry(section)
    if not config.context.read_by("trainer") or not isinstance(given, str) or entry is None:
        return
    if not isinstance(kind, str):
        return
    meant = same.get(kind) or same.get(kind.lower(), ())
    if given.lower() not in meant:
        key = {"argument": argument, "given": given, "kind": kind, "guessed": Words(config.context.guessed)}
        kind_entry = config.entry(f"{section}.type") or entry
        yield Event(f"{section}-overrides-args", f"{section}.type", kind_entry.span, key)
