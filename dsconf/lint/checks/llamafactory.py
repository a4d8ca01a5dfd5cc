"""The named checks over a config of LLaMA-Factory."""

from __future__ import annotations

from dsconf.lint.checks.files import file_missing

CHECKS = {"accelerate-ds-file-missing": file_missing}
