"""Which keys of `optimizer.params` and `scheduler.params` the class takes that DeepSpeed builds."""

from __future__ import annotations

from dsconf.config.effective import Facts, Written
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS, SCHEDULER_ARGUMENTS, TORCH_SCHEDULERS
from dsconf.formats.deepspeed.keys import since


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
    popped = since("0.19.1", facts.config.context.deepspeed_version)
    if popped is False and built in ("FusedAdam", "torch.optim.Adam", "torch.optim.AdamW"):
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
