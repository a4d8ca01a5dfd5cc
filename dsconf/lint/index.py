"""Where the compiled rules come from: the wheel's index, or in a checkout the rule files themselves."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  start-up time
INDEX_FILE = "_rules.json"
"""Written by the build hook into the package."""


def load_rules() -> list[dict[str, Any]]:
    """The compiled rules, by code (see `dsconf.lint.compile.compile_rule`)."""
    try:
        with open(os.path.join(_PACKAGE, INDEX_FILE), encoding="utf-8") as handle:  # noqa: PTH118, PTH123
            rules: list[dict[str, Any]] = json.load(handle)
            return rules
    except FileNotFoundError:
        return list(_compiled_here())


@cache
def _compiled_here() -> list[dict[str, Any]]:
    from pathlib import Path  # a checkout has no index: the compiler is needed there only

    from dsconf.lint.compile import compile_rules

    return compile_rules(Path(_PACKAGE).parent / "rules")
