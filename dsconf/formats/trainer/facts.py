"""What follows from training arguments: whether FSDP is on, which one, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsconf.config.effective import Reader
from dsconf.config.fsdp import FSDP_FACTS, STRATEGIES
from dsconf.document.node import UNKNOWN
from dsconf.formats.trainer.keys import load_keys

_NOT = ("false", "no", "off", "none", "null", "0", "n", "f")
_BOTH_VERSIONS = ("full_shard", "shard_grad_op")
"""The strategies that FSDP2 has an equal for, in the only spelling that it takes."""
_OTHER_WORDS = ("offload", "auto_wrap")


def whole_arguments(read: Reader) -> object:
    """Whether these are all arguments, not a file with fsdp_config alone."""
    if any(read.present(name) for name in load_keys()["keys"] if name != "fsdp_config"):
        return True
    return UNKNOWN if read.may_hold("fsdp") else False


def fsdp_words(read: Reader) -> object:
    """The words of `fsdp` in small letters where it is text or a list, none otherwise."""
    words = _words(read)
    return (
        [word.lower() if isinstance(word, str) else word for word in words] if words is not None else UNKNOWN
    )


def _words(read: Reader) -> list[Any] | None:
    """The words as they are written, None where they are not known."""
    raw = read.written("fsdp")
    if raw is UNKNOWN:
        return None
    return raw.split() if isinstance(raw, str) else raw if isinstance(raw, list) else []


def fsdp_problem(read: Reader) -> object:
    """The first word of `fsdp` that is refused; "none" where there is none."""
    words, version = _words(read), _version(read)
    if words is None or (words and version is UNKNOWN):
        return UNKNOWN
    for word in words:
        known = isinstance(word, str) and (
            word in _OTHER_WORDS or (word in _BOTH_VERSIONS if version == 2 else word.upper() in STRATEGIES)
        )
        if not known:
            return str(word)
    return "none"


def fsdp_text(read: Reader) -> object:
    """Whether `fsdp` is text or a list, in words that are taken."""
    words, problem = _words(read), read.fact("fsdp_problem")
    return UNKNOWN if problem is UNKNOWN else bool(words) and problem == "none"


def _on(read: Reader) -> object:
    """Whether `fsdp` counts as true; a file with fsdp_config alone is for where it does."""
    if read.may_hold("fsdp"):
        return UNKNOWN
    if not read.present("fsdp"):
        whole = read.fact("whole_arguments")
        return UNKNOWN if whole is UNKNOWN else not whole and read.present("fsdp_config")
    raw = read.written("fsdp")
    return UNKNOWN if raw is UNKNOWN else bool(raw)


def fsdp_on(read: Reader) -> object:
    """Whether the training uses FSDP of PyTorch; not known for that of PyTorch/XLA."""
    on = _on(read)
    return UNKNOWN if on is True and read.value("fsdp_config.xla") is not False else on


def deepspeed_on(read: Reader) -> object:
    """Whether the training uses DeepSpeed."""
    raw = read.written("deepspeed")
    return UNKNOWN if raw is UNKNOWN else bool(raw)


def _version(read: Reader) -> object:
    version = read.value("fsdp_config.version")
    return version if version in (1, 2) else UNKNOWN


def _of_fsdp(function: Callable[[Reader], object]) -> Callable[[Reader], object]:
    def fact(read: Reader) -> object:
        return function(read) if read.fact("fsdp_on") is True else UNKNOWN

    return fact


def strategy_refused(read: Reader) -> object:
    """Whether FSDP1 fails for reshard_after_forward, which has to be a strategy or its number, and has no effect."""
    raw = read.written("fsdp_config.reshard_after_forward")
    if raw is UNKNOWN or read.fact("fsdp_version") != 1:
        return UNKNOWN
    text = str(raw).upper()
    fits = text in STRATEGIES or (text.isdecimal() and 1 <= int(text) <= len(STRATEGIES))
    return read.present("fsdp_config.reshard_after_forward") and not fits


def _offload(read: Reader) -> object:
    path = "fsdp_config.cpu_offload"
    if read.present(path) or read.may_hold(path):
        return read.value(path)
    words = read.fact("fsdp_words")
    if not isinstance(words, list) or read.value(path) is UNKNOWN:
        return UNKNOWN
    return "offload" in words


def _state_dict_type(read: Reader) -> object:
    value = read.value("fsdp_config.state_dict_type")
    if value is None:
        version = _version(read)
        return UNKNOWN if version is UNKNOWN else "FULL_STATE_DICT" if version == 1 else "SHARDED_STATE_DICT"
    return value


def _number(read: Reader) -> object:
    value = read.value("fsdp_config.min_num_params")
    return value if isinstance(value, int) else UNKNOWN


def offload_text(read: Reader) -> object:
    """Whether cpu_offload is text that says no, and counts as true."""
    raw = read.written("fsdp_config.cpu_offload")
    return raw if raw is UNKNOWN else isinstance(raw, str) and raw.strip().lower() in _NOT


def offload_text_written(read: Reader) -> object:
    """cpu_offload as it is written."""
    return read.written("fsdp_config.cpu_offload")


def empty_section(read: Reader) -> object:
    """Whether nothing stands in fsdp_config."""
    raw = read.written("fsdp_config")
    return raw if raw is UNKNOWN else not raw


FACTS: dict[str, Callable[[Reader], object]] = {
    **FSDP_FACTS,
    "whole_arguments": whole_arguments,
    "fsdp_words": fsdp_words,
    "fsdp_problem": fsdp_problem,
    "fsdp_text": fsdp_text,
    "fsdp_on": fsdp_on,
    "deepspeed_on": deepspeed_on,
    "fsdp_version": _of_fsdp(_version),
    "fsdp_offload": _of_fsdp(_offload),
    "wrap_policy": _of_fsdp(lambda read: read.value("fsdp_config.auto_wrap_policy")),
    "min_num_params": _of_fsdp(_number),
    "state_dict_type": _of_fsdp(_state_dict_type),
    "strategy_refused": strategy_refused,
    "offload_text": offload_text,
    "offload_text_written": offload_text_written,
    "empty_section": empty_section,
}
"""The facts by name."""
