"""What can be written: each target with its writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dsconf.config.tables import spec_at
from dsconf.formats.accelerate.write_deepspeed import DeepSpeed
from dsconf.formats.accelerate.write_deepspeed import write_deepspeed as for_accelerate
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.deepspeed.write import drafted, needs_of
from dsconf.formats.outcome import Landing
from dsconf.formats.reading import Reading
from dsconf.formats.trainer.write_deepspeed import write_deepspeed as for_trainer
from dsconf.formats.writing import Request, Writing
from dsconf.plan import Plan
from dsconf.translate.readers import Held, Told, kept, with_values

_WRITERS = {
    "fsdp2": "fsdp2",
    "accelerate-fsdp2": "accelerate",
    "trainer-fsdp2": "trainer",
    "axolotl": "axolotl",
}
"""By target the room whose module `write` writes it from the Plan alone."""


def reading_for(target: str, told: Told) -> Reading:
    """What the source says to a target."""
    return told.reading if target in _WRITERS else kept(told)


def takes(target: str, path: str) -> bool:
    """Whether a value of a source without such a key may be given for a key of the target, by dotted path."""
    if target in _WRITERS:
        return False
    try:
        spec_at(load_keys(), path)
    except KeyError:
        return False
    return True


def write(
    target: str,
    held: Held | None,
    reading: Reading,
    plan: Plan,
    request: Request,
    given: Mapping[str, object],
) -> Writing:
    """Write a Plan as one of `dsconf.translate.TARGETS`; `held` is the DeepSpeed config that the source has.

    `reading` is what `reading_for` gives, and `plan` its Plan with what is known of the run; `given` are values by
    path for what the target `takes`.
    """
    if target in _WRITERS:
        writing: Writing = import_module(f"dsconf.formats.{_WRITERS[target]}.write").write(plan, request)
        return writing
    settings, landings = _settings(held, reading, plan)
    settings = with_values(settings, given)
    landings = {
        field: landing._replace(outcome="exact", note="said with --set", action=None)
        if landing.outcome == "needs-value" and landing.target in given
        else landing
        for field, landing in landings.items()
    }
    path = held.path if held is not None and settings == held.settings else None
    if target == "accelerate-deepspeed":
        return for_accelerate(plan, request, DeepSpeed(settings, landings, path))
    if target == "trainer-deepspeed":
        return for_trainer(plan, request, settings, landings, path)
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    return Writing(text, landings, needs_of(settings))


def _settings(
    held: Held | None, reading: Reading, plan: Plan
) -> tuple[Mapping[str, Any], Mapping[str, Landing]]:
    """The DeepSpeed config: as the source has it, with the sections that only stand beside it there."""
    settings, landings = drafted(plan)
    if held is None:
        return settings, landings
    beside = {} if reading.source == "deepspeed" else settings
    settings = {**beside, **held.settings}
    own = {field for key, field in reading.fields.items() if key in held.keys}
    exact = {field: Landing("exact", landings[field].target if field in landings else "") for field in own}
    return settings, {**landings, **exact}
