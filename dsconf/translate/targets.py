"""What can be written: each target with its writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from dsconf.config.effective import Config
from dsconf.config.tables import spec_at
from dsconf.document.yaml_reader import scan_yaml
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.outcome import Landing
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request, Writing
from dsconf.plan import Plan, Unresolved
from dsconf.translate.rooms import room
from dsconf.translate.told import Held, Told, kept, with_values, without

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


def takes(target: str, path: str, version: str | None) -> bool:
    """Whether a value of a source without such a key may be given for a key of the target, by dotted path.

    `version` is that of the DeepSpeed that will run; None: the newest.
    """
    return target not in _WRITERS and _has(version, path)


def write(
    target: str,
    held: Held | None,
    reading: Reading,
    plan: Plan,
    request: Request,
    given: Mapping[str, object],
    version: str | None,
) -> Writing:
    """Write a Plan as one of `dsconf.translate.TARGETS`; `held` is the DeepSpeed config that the source has.

    `reading` is what `reading_for` gives, and `plan` its Plan with what is known of the run; `given` are values by
    path for what the target `takes`, and `version` is that of the DeepSpeed that will run (None: the newest).
    """
    if target in _WRITERS:
        return room(f"{_WRITERS[target]}.write").write(plan, request)  # type: ignore[no-any-return]
    plan = _decided(plan, given)
    settings, landings = _settings(target, held, reading, plan, version)
    settings = with_values(settings, given)
    landings = {
        field: landing._replace(outcome="exact", note="said with --set", action=None)
        if landing.target in given
        else landing
        for field, landing in landings.items()
    }
    path = held.path if held is not None and settings == held.settings else None
    writing: Writing
    if target == "accelerate-deepspeed":
        accelerate = room("accelerate.write_deepspeed")
        writing = accelerate.write_deepspeed(plan, request, accelerate.DeepSpeed(settings, landings, path))
    elif target == "trainer-deepspeed":
        trainer = room("trainer.write_deepspeed")
        writing = trainer.write_deepspeed(plan, request, settings, landings, path)
    else:
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        writing = Writing(text, landings, room("deepspeed.write").needs_of(settings))
    return writing


def in_place(config: Config, labels: Mapping[str, str], classes: tuple[str, ...]) -> tuple[Reading, Writing]:
    """An Accelerate config for FSDP1 changed where it stands to one for FSDP2. Raises EditError where it can't be.

    `classes` are those of the units, as far as somebody says them.
    """
    parse = partial(scan_yaml, config.document.path)
    edited = room("accelerate.in_place").to_fsdp2(config, labels, parse, classes)
    return edited.reading, Writing(edited.text, edited.landings, edited.needs)


def _settings(
    target: str, held: Held | None, reading: Reading, plan: Plan, version: str | None
) -> tuple[Mapping[str, Any], Mapping[str, Landing]]:
    """The DeepSpeed config: as the source has it, with what stands beside it there, and not in the target."""
    settings, landings = _known_to(version, *room("deepspeed.write").drafted(plan))
    if held is None:
        return settings, landings
    beside = {} if reading.source in ("deepspeed", target) else settings
    settings = without({**beside, **held.settings}, _refused(reading))
    own = {field for key, field in reading.fields.items() if key in held.keys}
    exact = {field: Landing("exact", landings[field].target if field in landings else "") for field in own}
    return settings, {**landings, **exact}


def _decided(plan: Plan, given: Mapping[str, object]) -> Plan:
    """A Plan whose dtype was left open, with the one that is given for DeepSpeed."""
    if not isinstance(plan.precision.compute, Unresolved):
        return plan
    on = {dtype: given.get(f"{dtype}.enabled") for dtype in ("bf16", "fp16")}
    chosen = next((dtype for dtype, value in on.items() if value is True), None)
    if chosen is None and set(on.values()) == {False}:
        chosen = "fp32"
    precision = plan.precision if chosen is None else plan.precision.model_copy(update={"compute": chosen})
    return plan.model_copy(update={"precision": precision})


def _known_to(
    version: str | None, settings: Mapping[str, Any], landings: Mapping[str, Landing]
) -> tuple[Mapping[str, Any], Mapping[str, Landing]]:
    """A DeepSpeed config without the keys that an older version does not have, whose fields are unsupported then."""
    if version is None:
        return settings, landings
    newer = {path for path in room("deepspeed.write").paths(settings) if not _has(version, path)}
    told = {}
    for field, landing in landings.items():
        key = landing.target.partition(":")[0]
        told[field] = (
            Landing("unsupported", "", f"DeepSpeed {version} has no {key}") if key in newer else landing
        )
    return without(settings, newer), told


def _has(version: str | None, path: str) -> bool:
    try:
        spec_at(load_keys(version), path)
    except KeyError:
        return False
    return True


def _refused(reading: Reading) -> list[str]:
    """The keys that DeepSpeed no longer takes, by their paths in its config."""
    refused = [item.key for item in reading.items if item.outcome == "rejected-by-source"]
    nested: str = room("trainer.merge").PREFIX
    return [key.removeprefix(nested) for key in refused]
