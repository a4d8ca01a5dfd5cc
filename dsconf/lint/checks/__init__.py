"""Named checks: what a condition over keys can't say. A rule asks for one with `check = "name"`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.checks.reading import json_strictness, json_syntax, template_placeholder, unquoted_text
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

CHECKS: dict[str, Check] = {
    "json-syntax": json_syntax,
    "json-strictness": json_strictness,
    "unquoted-text": unquoted_text,
    "template-placeholder": template_placeholder,
}
"""Every check by its name. Its events have that name as their kind."""
