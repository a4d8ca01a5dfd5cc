"""What DeepSpeed refuses although its meaning is clear: that stops no translation, and the report says it."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.config.effective import Config
from dsconf.config.tables import spec_at
from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.formats.outcome import Item
from dsconf.lint.finding import Finding

_CLEAR = {
    "zero-untested-optimizer",
    "one-bit-with-zero",
    "torch-scheduler-on-zero",
    "muon-zero3-reduce-scatter",
    "predivide-with-zero",
    "odd-allgather-bucket",
    "nvme-path-missing",
    "steps-per-print-zero",
    "resume-world-size",
    "universal-needs-zero",
    "pipeline-loading-needs-zero3",
}
"""Rules whose errors leave no doubt of what is meant to be trained."""

_ONE_BIT = ("onebitadam", "onebitlamb", "zerooneadam")
"""Optimizers that newer DeepSpeeds no longer know, in lower case."""


def stops(config: Config, finding: Finding) -> bool:
    """Whether an error leaves open what the source means."""
    if finding.severity != "error" or finding.key in config.overrides:
        return False
    return not (_is_removed(config, finding.key) or _is_clear(config, finding))


def with_refusals(items: Sequence[Item], config: Config, findings: Sequence[Finding]) -> list[Item]:
    """The items, with a note on each key that the source refuses although it is clear."""
    refused = {finding.key: finding for finding in findings if _is_clear(config, finding)}
    version = config.context.deepspeed_version or NEWEST
    told = []
    for item in items:
        finding = refused.get(item.key)
        if finding is not None:
            note = f"DeepSpeed {version} itself refuses it ({finding.code}): {finding.message}"
            item = item._replace(note=f"{item.note}; {note}" if item.note else note)
        told.append(item)
    return told


def _is_clear(config: Config, finding: Finding) -> bool:
    if finding.rule == "optimizer-unknown-type":
        return str(config.raw("optimizer.type")).lower() in _ONE_BIT
    return finding.rule in _CLEAR


def _is_removed(config: Config, path: str) -> bool:
    """Whether the source has removed a key, which then says nothing of the training that was meant."""
    return config.knows(path) and spec_at(config.table, path)[1].get("status") == "removed"
