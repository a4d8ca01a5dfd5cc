"""Training arguments and the DeepSpeed config that they name: what DeepSpeed ends up with, and one Reading of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsconf.config.effective import Config
from dsconf.document.node import UNKNOWN
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.formats.trainer.fill import matches
from dsconf.formats.training.arguments import Given
from dsconf.formats.training.defaults import DEFAULTS

PREFIX = "deepspeed."
"""What the keys of the DeepSpeed config begin with, beside those of the arguments."""
_THERE = "the DeepSpeed config decides it"
_PUT_IN = "Trainer puts its own value there"
_COMPARED = {
    "train_micro_batch_size_per_gpu": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    "gradient_clipping": "clipping.max_norm",
    "optimizer.params.lr": "optimizer.lr",
    "optimizer.params.eps": "optimizer.eps",
    "optimizer.params.weight_decay": "optimizer.weight_decay",
    "scheduler.params.warmup_max_lr": "optimizer.lr",
    "scheduler.params.total_num_steps": "schedule.total_steps",
}
"""Keys that Trainer compares with an argument, by the field of that."""
_SIZES = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Keys that Trainer puts in where they are missing."""


def given(config: Config) -> dict[str, object]:
    """The arguments that are given, by their canonical names."""
    paths = [*(item.path for item in config.written), *config.overrides]
    return {path: config.raw(path) for path in dict.fromkeys(paths) if "." not in path}


def handed(arguments: Mapping[str, Any], config: Config) -> dict[str, object]:
    """By path the values that Trainer puts into a DeepSpeed config: for "auto", and where nothing is written.

    `arguments` are those that are given, by name.
    """
    known = {name: value for name, value in arguments.items() if value is not UNKNOWN and value is not None}
    found: dict[str, object] = {
        match.path: match.value
        for match in matches(known, config.context.world_size)
        if config.raw(match.path) == "auto" and match.value is not UNKNOWN
    }
    if config.raw("scheduler.params.warmup_min_lr") == "auto":
        found["scheduler.params.warmup_min_lr"] = 0
    flags = Given(known)
    for path, argument in _SIZES.items():
        if not config.present(path) and not config.present("train_batch_size"):
            found[path] = known.get(argument, DEFAULTS[argument])
    if flags.flag("bf16") is True and not config.present("bf16"):
        found["bf16.enabled"] = True
    if flags.flag("fp16") is True and not config.present("fp16"):
        found |= {"fp16.enabled": True, "fp16.auto_cast": True}
    return found


def as_it_stands(filled: Reading, written: Mapping[str, object]) -> tuple[Reading, frozenset[str]]:
    """A Reading of a DeepSpeed config with what `handed` says, which shows what is `written`, and the keys put in.

    Where "auto" stands in the file that is shown, and what does not stand there is in force without being written.
    """
    put_in = {key: value for key, value in filled.written.items() if key not in written}
    items = [item._replace(written=False) if item.key in put_in else item for item in filled.items]
    in_force = {key: Default(value, _PUT_IN) for key, value in put_in.items()}
    shown = filled._replace(items=items, in_force={**filled.in_force, **in_force}, written=written)
    return shown, frozenset(put_in)


def merge(arguments: Reading, deepspeed: Reading, put_in: frozenset[str]) -> Reading:
    """One Reading of the arguments and of the DeepSpeed config `as_it_stands`, with the keys that Trainer put in.

    Where the config has no section for an optimizer or a schedule, Trainer makes one of the arguments.
    """
    ours = {"optimizer": "optimizer.type", "schedule": "scheduler.type"}
    update: dict[str, Any] = {"recompute": arguments.plan.recompute, "length": arguments.plan.length}
    fields = dict(arguments.fields)
    items = list(arguments.items)
    remarks = {**arguments.remarks}
    in_force = dict(arguments.in_force)
    for part, key in ours.items():
        if key not in deepspeed.written:
            update[part] = getattr(arguments.plan, part)
            continue
        _leave(part, arguments, deepspeed, fields, items)
        items = [item for item in items if not _of_part(item, part)]
    for key, field in list(fields.items()):
        if field.startswith(("batch.", "precision.", "clipping.")):
            in_force.pop(key, None)
            remarks.pop(key, None)
    in_force = {key: default for key, default in in_force.items() if key in fields}
    for item in _contradictions(arguments, deepspeed):
        fields.pop(item.key, None)
        items = [*(each for each in items if each.key != item.key), item]
    own = tuple(f"{part}." for part, key in ours.items() if key not in deepspeed.written)
    kept = {key: field for key, field in deepspeed.fields.items() if not field.startswith(own)}
    named = _prefixed(deepspeed._replace(fields=kept if own else deepspeed.fields))
    return Reading(
        deepspeed.plan.model_copy(update=update),
        {**named.fields, **fields},
        [*items, *named.items],
        {**remarks, **named.remarks},
        {**in_force, **named.in_force},
        {**arguments.labels, **named.labels},
        arguments.source,
        {**arguments.written, **named.written},
        frozenset(named.fields.keys() - {f"{PREFIX}{key}" for key in put_in}),
    )


def _of_part(item: Item, part: str) -> bool:
    """Whether an item says that an optimizer or schedule of Trainer's, which is not built, has no counterpart."""
    name = {"optimizer": "optim", "schedule": "lr_scheduler_type"}[part]
    return item.key == name and item.outcome == "unsupported"


def _leave(
    part: str, arguments: Reading, deepspeed: Reading, fields: dict[str, str], items: list[Item]
) -> None:
    """Arguments for an optimizer or schedule that the DeepSpeed config has: those that it doesn't take do nothing."""
    taken = {field for key, field in deepspeed.fields.items() if key in deepspeed.written}
    ends = "length.epochs" if arguments.plan.length.steps is None else "length.steps"
    for key, field in list(fields.items()):
        if field == "schedule.total_steps" and part == "schedule":
            fields[key] = ends
        elif field.startswith(f"{part}.") and (field == f"{part}.name" or field not in taken):
            del fields[key]
            if key in arguments.written:
                items.append(Item(key, arguments.written[key], "no-effect", note=_THERE))


def _contradictions(arguments: Reading, deepspeed: Reading) -> Iterator[Item]:
    """Arguments that say something else than the DeepSpeed config, which Trainer does not let pass."""
    keys = {field: key for key, field in arguments.fields.items() if key in arguments.written}
    for path, field in _COMPARED.items():
        key = keys.get(field)
        ours, theirs = arguments.written.get(key or ""), deepspeed.written.get(path)
        if key is None or not (_is_number(ours) and _is_number(theirs)) or ours == theirs:
            continue
        note = f"Trainer itself stops: {path} of the DeepSpeed config is {theirs}, which is what counts here"
        action = "write the same in both, or auto in the config"
        yield Item(key, ours, "rejected-by-source", note=note, action=action)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _prefixed(reading: Reading) -> Reading:
    """A Reading whose keys begin with PREFIX."""

    def named(table: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{PREFIX}{key}": value for key, value in table.items()}

    items = [item._replace(key=f"{PREFIX}{item.key}") for item in reading.items]
    remarks: dict[str, Remark] = named(reading.remarks)
    return reading._replace(
        fields=named(reading.fields),
        items=items,
        remarks=remarks,
        in_force=named(reading.in_force),
        written=named(reading.written),
    )
