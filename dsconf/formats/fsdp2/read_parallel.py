"""The layers that parallelize_module divides."""

from __future__ import annotations

from dsconf.formats.fsdp2.read_mesh import axes_of
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_styles import read_styles
from dsconf.formats.fsdp2.read_units import path_of
from dsconf.formats.fsdp2.read_values import Made, Table, Value
from dsconf.plan import Parallelism

_KEY = "parallelize_module"


def read_parallelism(notes: Notes) -> Parallelism:
    """Tensor parallelism, and what is said of other kinds."""
    for event in notes.of_torch("context_parallel"):
        note = "the sequence is divided by code that surrounds the forward pass"
        action = "keep it in your script"
        notes.say("context_parallel", True, "unsupported", note, node=event.made.node, action=action)
    for event in notes.of_torch("PipelineStage", "pipeline"):
        note = "stages of a pipeline are code, and no setting"
        notes.say("pipelining", True, "unsupported", note, node=event.made.node)
    calls = [event.made for event in notes.of_torch(_KEY)]
    if not calls:
        return Parallelism()
    mesh = calls[0].argument("device_mesh", 1)
    axes = axes_of(mesh)
    size = axes[-1].size if axes else None
    if size is None:
        note = f"the ranks of `{notes.text(mesh)}` are known in a run only: no layer is taken as divided"
        action = "say how many ranks divide a layer"
        notes.say(f"{_KEY}.device_mesh", mesh or "", "needs-value", note, node=calls[0].node, action=action)
        return Parallelism()
    notes.take(f"{_KEY}.device_mesh", "parallelism.tensor", size)
    blocks: dict[str, str] = {}
    root: dict[str, str] = {}
    for made in calls:
        target, plan = made.argument("module", 0), made.argument("parallelize_plan", 2)
        in_block = target is not None and "[]" in path_of(target)
        if in_block:
            blocks |= _styles(notes, made, plan)
        else:
            root |= _styles(notes, made, plan)
    return Parallelism(tensor=size, block_styles=blocks, root_styles=root)


def _styles(notes: Notes, made: Made, plan: Value | None) -> dict[str, str]:
    if isinstance(plan, Table) and plan.open is None:
        return read_styles(notes, _KEY, plan)
    note = "the plan of the layers is known in a run only"
    notes.say(f"{_KEY}.parallelize_plan", notes.text(plan), "needs-value", note, node=made.node)
    return {}
