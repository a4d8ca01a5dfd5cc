"""Facts about a section fsdp_config, whose keys have the same names in Accelerate, Trainer and Axolotl."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.config.environment import Refused, truth
from dsconf.document.node import UNKNOWN

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""The strategies of FSDP1 in the order of their numbers, which begin with 1."""
_RESHARD = "fsdp_config.reshard_after_forward"


def strategy_named(raw: object) -> object:
    """A strategy by its name or number in capitals; any other value as the text that the environment holds."""
    if raw is UNKNOWN:
        return UNKNOWN
    if isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= len(STRATEGIES):
        return STRATEGIES[raw - 1]
    text = str(raw)
    return text.upper() if text.upper() in STRATEGIES else text


def reshard_word(read: Reader) -> object:
    """What `reshard_after_forward` says, a strategy in capitals."""
    raw = read.written(_RESHARD)
    return str(raw) if isinstance(raw, int) else strategy_named(raw)


def reshard_problem(read: Reader) -> object:
    """Why `reshard_after_forward` is no truth value: "strategy", "number", "other"; "none" where it is one."""
    raw = read.written(_RESHARD)
    if raw is UNKNOWN:
        return UNKNOWN
    if raw is None or _is_truth(raw):
        return "none"
    if str(raw).upper() in STRATEGIES:
        return "strategy"
    return "number" if str(raw).isdecimal() else "other"


def _is_truth(raw: object) -> bool:
    try:
        truth(raw)
    except Refused:
        return False
    return True


FSDP_FACTS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact for fact in (reshard_word, reshard_problem)
}
"""By name those that depend on nothing but the section."""
