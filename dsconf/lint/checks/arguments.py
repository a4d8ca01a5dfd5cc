"""The arguments of the optimizer and of the schedule, against those that their classes take."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dsconf.config.effective import Config, Facts, Written
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS, SCHEDULER_ARGUMENTS, TORCH_SCHEDULERS
from dsconf.lint.event import Event
from dsconf.lint.nearest import nearest

_MEANT = {
    "lr": ("learning_rate",),
    "eps": ("epsilon", "adam_epsilon"),
    "betas": ("beta", "beta1", "adam_betas"),
    "warmup_num_steps": ("warmup_step", "warmup_steps", "num_warmup_steps"),
    "total_num_steps": ("total_steps", "max_steps", "num_training_steps", "train_steps"),
    "warmup_min_lr": ("min_lr",),
    "warmup_max_lr": ("max_lr",),
    "cycle_min_lr": ("min_lr",),
    "cycle_max_lr": ("max_lr",),
}
"""By key what it is called elsewhere."""
_LISTS = (
    "warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "cycle_min_mom", "cycle_max_mom",
    "lr_range_test_min_lr",
)  # fmt: skip
"""Arguments of a schedule that may hold one number for each group of parameters."""
_SHAPES = ("log", "linear")
"""What `warmup_type` may be."""


def taken(facts: Facts, section: str) -> list[str] | None:
    """The names that the class of "optimizer" or "scheduler" takes; None where the class is not known."""
    if section == "scheduler":
        arguments = scheduler_arguments(facts)
        return None if arguments is None else " ".join(arguments).split()
    built = facts.value("optimizer_class")
    names = OPTIMIZER_ARGUMENTS.get(built) if isinstance(built, str) else None
    if names is None:
        return None
    found = names.split()
    popped = facts.config.context.since("0.19.1")
    if not popped and built in ("FusedAdam", "torch.optim.Adam", "torch.optim.AdamW"):
        found.remove("fp32_optimizer_states")
    return found


def scheduler_arguments(facts: Facts) -> tuple[str, str] | None:
    """What the class of `scheduler.type` needs and what it may have; None where there is no such class."""
    name = facts.config.value("scheduler.type")
    if not isinstance(name, str):
        return None
    return SCHEDULER_ARGUMENTS.get(name) or TORCH_SCHEDULERS.get(name)


def is_taken(facts: Facts, item: Written) -> bool | None:
    """Whether the class takes a key of `params`; None for other keys, and where the class is not known."""
    if item.section.get("unknown") != "depends":
        return None
    names = taken(facts, item.path.partition(".")[0])
    return None if names is None else item.entry.key in names


def optimizer_arguments(config: Config, facts: Facts) -> Iterator[Event]:
    """Every key of `optimizer.params` that its class does not take."""
    built = facts.value("optimizer_class")
    for item in _params(config, "optimizer"):
        if is_taken(facts, item) is False and (item.spec or {}).get("status") != "removed":
            key = {
                "built": built,
                "silent": built == "MuonWithAuxAdam",
                **_name(config, item, taken(facts, "optimizer") or []),
            }
            yield Event("optimizer-arguments", item.path, item.entry.key_span, key)


def scheduler_params(config: Config, facts: Facts) -> Iterator[Event]:
    """Keys of `scheduler.params` that its class does not take, that it needs, and lists of different lengths."""
    kind = config.value("scheduler.type")
    arguments = scheduler_arguments(facts)
    section = config.entry("scheduler.params")
    if arguments is None or section is None or section.node.kind != "object":
        return
    for item in _params(config, "scheduler"):
        if is_taken(facts, item) is False:
            others = [name for name, names in SCHEDULER_ARGUMENTS.items() if _has(names, item.entry.key)]
            key = {
                "problem": "unknown",
                "built": kind,
                "others": " and ".join(others) or None,
                **_name(config, item, taken(facts, "scheduler") or []),
            }
            yield Event("scheduler-params", item.path, item.entry.key_span, key)
    paths = {name: f"scheduler.params.{name}" for name in arguments[0].split()}
    missing = [name for name, path in paths.items() if not (config.present(path) or config.may_hold(path))]
    if missing:
        key = {"problem": "missing", "built": kind, "names": " and ".join(missing), "many": len(missing) > 1}
        yield Event("scheduler-params", "scheduler.params", section.key_span, key)
    yield from _lists(config, kind)


def _lists(config: Config, kind: object) -> Iterator[Event]:
    lists = [
        item
        for item in _params(config, "scheduler")
        if item.entry.node.kind == "array" and item.entry.key in _LISTS
    ]
    lengths = {len(item.entry.node.elements) for item in lists}
    if len(lengths) > 1 or 0 in lengths:
        item = min(lists, key=lambda item: len(item.entry.node.elements))
        key = {
            "problem": "lists",
            "built": kind,
            "name": item.entry.key,
            "length": len(item.entry.node.elements),
            "empty": not item.entry.node.elements,
        }
        places = tuple(
            (other.entry.span, f"{len(other.entry.node.elements)} here")
            for other in lists
            if other is not item
        )
        yield Event("scheduler-params", item.path, item.entry.span, key, places)


def cycled_momentum(config: Config, facts: Facts) -> Iterator[Event]:
    """A momentum that OneCycle is to move, of an optimizer without betas."""
    built = facts.value("optimizer_class")
    names = OPTIMIZER_ARGUMENTS.get(built) if isinstance(built, str) else None
    if config.value("scheduler.type") != "OneCycle" or names is None:
        return
    # Muon has them in one half of its groups only, where OneCycle does not look.
    has_betas = "betas" in names.split() and built != "MuonWithAuxAdam"
    if has_betas or not config.value("scheduler.params.cycle_momentum"):
        return
    for name in ("cycle_momentum", "cycle_min_mom", "cycle_max_mom"):
        entry = config.entry(f"scheduler.params.{name}")
        if entry is not None:
            yield Event("cycled-momentum", f"scheduler.params.{name}", entry.span, {"built": built})
            return


def warmup_type(config: Config, facts: Facts) -> Iterator[Event]:
    """A shape of the warm-up that DeepSpeed takes for its default."""
    entry, arguments = config.entry("scheduler.params.warmup_type"), scheduler_arguments(facts)
    if entry is None or arguments is None or not _has(arguments, "warmup_type"):
        return
    raw = entry.node.plain()
    if raw is UNKNOWN or raw in _SHAPES:
        return
    meant = nearest(raw, _SHAPES) if isinstance(raw, str) else None
    key = {"met": json.dumps(raw, ensure_ascii=False), "meant": meant}
    yield Event("warmup-type", "scheduler.params.warmup_type", entry.span, key)


def _params(config: Config, section: str) -> list[Written]:
    return [item for item in config.written if item.path.startswith(f"{section}.params.")]


def _has(names: tuple[str, str], name: str) -> bool:
    return name in " ".join(names).split()


def _name(config: Config, item: Written, names: list[str]) -> dict[str, object]:
    name, section = item.entry.key, item.path.partition(".")[0]
    free = [other for other in names if not config.present(f"{section}.params.{other}")]
    meant = next((own for own in free if name.lower() in _MEANT.get(own, ())), None)
    return {
        "name": name,
        "suggestion": meant or nearest(name, free),
        "known": ", ".join(names),
    }
