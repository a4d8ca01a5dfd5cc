"""Named checks: what a condition over keys can't say. A rule asks for one with `check = "name"`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.checks.arguments import cycled_momentum, optimizer_arguments, scheduler_params, warmup_type
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

CHECKS: dict[str, Check] = {
    "optimizer-arguments": optimizer_arguments,
    "scheduler-params": scheduler_params,
    "cycled-momentum": cycled_momentum,
    "warmup-type": warmup_type,
}
"""Every check by its name. Its events have that name as their kind."""
