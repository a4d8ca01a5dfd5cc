"""The file of training arguments that both targets have: its head, its lines, and who starts it."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.formats.outcome import Landing
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.text import heading, open_lines
from dsconf.formats.writing import UNTRAINED, Request
from dsconf.formats.yaml_lines import Line, lines_of

NEEDS = "transformers 5.24"
_FOLDER = Line("output_dir", "trainer_output", "Trainer's default, where checkpoints go")


def land_launch(draft: Draft) -> None:
    """The machines, which are the launcher's."""
    launch = draft.plan.launch
    world = draft.plan.world
    command = "torchrun" if launch.machines in (None, 1) else f"torchrun --nnodes {launch.machines}"
    each = launch.gpus_per_node or (world if launch.machines in (None, 1) else None)
    target = f"{command} --nproc_per_node {each or '...'}"
    for field in ("launch.world_size", "launch.gpus_per_node", "launch.machines"):
        draft.landings[field] = Landing("exact", target)
    draft.landings |= UNTRAINED


def text_of(draft: Draft, request: Request, lines: list[Line], unsaid: Sequence[str] = ()) -> str:
    """The file; `unsaid` are arguments of which the source says nothing."""
    labels = request.labels
    rest = [Line(name, value, labels.get(field, "")) for name, (value, field) in draft.settings.items()]
    head = heading(request.origin, draft.landings, labels)
    return "\n".join([*head, *lines_of([_FOLDER, *lines, *rest]), *open_lines(draft.open, unsaid), ""])
