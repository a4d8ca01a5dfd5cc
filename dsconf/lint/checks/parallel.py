"""Values of the sections for parallel training that DeepSpeed looks at only when the feature is built."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dsconf.config.effective import Config, Facts, Written
from dsconf.document.node import UNKNOWN
from dsconf.lint.event import Event
from dsconf.lint.wrong_value import wrong_value

_FLAGS = ("pipeline.pipe_partitioned", "pipeline.grad_partitioned")
_NUMBERS = ("comm_num_sm", "comm_qp_margin", "comm_max_tokens_per_rank")
"""The numbers of `expert_parallel` that have to be integers within bounds."""


def pipeline_flags(config: Config, facts: Facts) -> Iterator[Event]:
    """Switches that have to be booleans to Python."""
    for item in _known(config, "pipeline."):
        value = item.entry.node.plain()
        if item.path in _FLAGS and not isinstance(value, bool):
            key = {"name": item.entry.key, "met": json.dumps(value, ensure_ascii=False)}
            yield Event("pipeline-flags", item.path, item.entry.span, key)


def autoep_values(config: Config, facts: Facts) -> Iterator[Event]:
    """Words and numbers that AutoEP does not have, where it is on."""
    if config.value("expert_parallel.enabled") is not True:
        return
    for item in _known(config, "expert_parallel."):
        spec = item.spec or {}
        word = "values" in spec and spec["type"] == "str"
        if word or item.entry.key in _NUMBERS:
            strictly = {**spec, "wrong_fails": "init"}
            if not word:
                strictly |= {"quoted_fails": "init", "int_only": True}
            found = wrong_value(strictly, "raw", item.entry.node.plain())
            if found is not None:
                key = {
                    "name": item.entry.key,
                    "met": found["met"],
                    "expected": found["expected"],
                    "meant": found["meant"],
                }
                yield Event("autoep-values", item.path, item.entry.span, key)


def _known(config: Config, section: str) -> Iterator[Written]:
    """The keys of a section that are written, and whose values are known."""
    for item in config.written:
        if item.path.startswith(section) and item.entry.node.plain() is not UNKNOWN:
            yield item
