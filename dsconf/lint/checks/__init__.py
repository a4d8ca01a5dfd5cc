"""Named checks: what a condition over keys can't say. A rule asks for one with `check = "name"`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.checks.zero import resume_world_size, stage3_keys
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

CHECKS: dict[str, Check] = {"stage3-keys": stage3_keys, "resume-world-size": resume_world_size}
"""Every check by its name. Its events have that name as their kind."""
