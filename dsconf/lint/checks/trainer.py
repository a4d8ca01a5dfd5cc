"""The named checks over TrainingArguments, and over files of trainers that are built on them."""

from __future__ import annotations

from dsconf.lint.checks import fsdp

CHECKS = {**fsdp.CHECKS}
