"""How layers are divided."""

from __future__ import annotations

from typing import Any

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_values import Attr, Made, Table, Value, called, plain, torch_name


def read_styles(notes: Notes, key: str, plan: Table) -> dict[str, str]:
    """The styles of a plan by path; says which ones are not translated."""
    found = {}
    for path, style in plan.items.items():
        name = _style(style)
        if name is None:
            node = style.node if isinstance(style, Made) else None
            note = f"`{notes.text(style)}` is none of the styles that are translated"
            notes.say(f"{key}.{path}", style, "unsupported", note, node=node)
        else:
            notes.take(f"{key}.{path}", "parallelism.tensor", notes.text(style))
            found[str(path)] = name
    return found


def _style(style: Value) -> str | None:
    """The style as transformers calls it; None for one that has no such name."""
    if not isinstance(style, Made) or not torch_name(style.function):
        return None
    given: dict[str, Any] = {name: _plain_or_name(value) for name, value in style.keywords.items()}
    match called(style), given:
        case "ColwiseParallel", {**rest} if not rest and not style.args:
            return "colwise"
        case "RowwiseParallel", {**rest} if not rest and not style.args:
            return "rowwise"
        case "ColwiseParallel", {"output_layouts": "Replicate", **rest} if not rest and not style.args:
            return "colwise_gather_output"
        case "SequenceParallel", {"use_local_output": True, **rest} if not rest and not style.args:
            return "replicated_with_grad_allreduce"
        case _:
            return None


def _plain_or_name(value: Value) -> Any:
    """A constant, or the name of the class that a value is an object of."""
    if isinstance(value, Made) and not isinstance(value.function, Attr):
        return called(value)
    return plain(value)
