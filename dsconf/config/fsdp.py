"""Facts about a section fsdp_config, whose keys have the same names in Accelerate, Trainer and Axolotl."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""The strategies of FSDP1 in the order of their numbers, which begin with 1."""
_TRUTH = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")
_RESHARD = "fsdp_config.reshard_after_forward"


def _word(raw: object) -> object:
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
    return str(raw) if isinstance(raw, int) else _word(raw)


def strategy_word(read: Reader) -> object:
    """What `sharding_strategy` says, a strategy in capitals."""
    return _word(read.written("fsdp_config.sharding_strategy"))


def reshard_problem(read: Reader) -> object:
    """Why `reshard_after_forward` is no truth value: "strategy", "number", "other"; "none" where it is one."""
    raw = read.written(_RESHARD)
    if raw is UNKNOWN:
        return UNKNOWN
    if raw is None or str(raw).lower() in _TRUTH:
        return "none"
    if str(raw).upper() in STRATEGIES:
        return "strategy"
    return "number" if str(raw).isdecimal() else "other"


def state_dict_written(read: Reader) -> object:
    """`state_dict_type` as it is written."""
    return read.written("fsdp_config.state_dict_type")


FSDP_FACTS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact for fact in (reshard_word, strategy_word, reshard_problem, state_dict_written)
}
"""By name those that depend on nothing but the section."""
