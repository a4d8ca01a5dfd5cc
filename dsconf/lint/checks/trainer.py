"""The named checks over TrainingArguments."""

from __future__ import annotations

from dsconf.lint.checks import fsdp
from dsconf.lint.checks.files import file_missing

CHECKS = {**fsdp.CHECKS, "accelerate-ds-file-missing": file_missing}
