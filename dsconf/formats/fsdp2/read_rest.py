"""What no field of the Plan holds: what stays in the script, and arguments that change no training."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_units import Unit
from dsconf.formats.fsdp2.read_values import called, plain
from dsconf.formats.outcome import Outcome

_READ = ("module", "mesh", "reshard_after_forward", "mp_policy", "offload_policy")
_OF_UNITS: dict[str, tuple[Outcome, str]] = {
    "shard_placement_fn": ("exact", "which dimension of a parameter is divided: no number changes"),
    "ignored_params": (
        "approximate",
        "these parameters stay whole, and their gradients are not reduced: right for those that don't train",
    ),
    "dp_mesh_dims": ("needs-value", "which dimensions of the mesh hold copies is not followed"),
}
"""More arguments of fully_shard."""


def read_rest(notes: Notes, found: Sequence[Unit]) -> None:
    """Say of everything else what becomes of it."""
    for unit in found:
        name = called(unit.made)
        for argument, value in unit.made.keywords.items():
            if argument in _READ or plain(value) is None:
                continue
            usual: tuple[Outcome, str] = ("no-effect", "how gradients are reduced, and not what")
            outcome, note = _OF_UNITS.get(argument, usual)
            notes.say(f"{name}.{argument}", value, outcome, note, node=unit.made.node)
    for event in notes.of_torch("compile"):
        note = "it stays in the script, and changes no number but by rounding"
        notes.say("torch.compile", True, "exact", note, node=event.made.node)
    for event in notes.of_torch("init_process_group"):
        backend = event.made.argument("backend", 0)
        notes.say("init_process_group", backend or True, "no-effect", "the launcher and the script do it")
    for event in notes.methods("set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch"):
        notes.say(
            called(event.made), True, "no-effect", "when weights are gathered, and not what is computed"
        )
    if notes.run.exhausted:
        note = "the file is too long: what stands at its end was not followed"
        notes.say("(the file)", "", "needs-value", note, written=False)
