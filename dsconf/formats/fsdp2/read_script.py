"""Code that somebody wrote, to the Plan."""

from __future__ import annotations

from dsconf.formats.fsdp2.read_loop import optimizer_steps, read_batch, read_clipping, sized
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_optimizer import made_optimizers, read_optimizer
from dsconf.formats.fsdp2.read_parallel import read_parallelism
from dsconf.formats.fsdp2.read_precision import read_precision
from dsconf.formats.fsdp2.read_schedule import read_schedule
from dsconf.formats.fsdp2.read_sharding import last_only, read_offload, read_sharding
from dsconf.formats.fsdp2.read_units import Unit, read_wrapping, units
from dsconf.formats.fsdp2.read_values import called
from dsconf.plan import Checkpoint, Plan

_RECOMPUTES = ("checkpoint_wrapper", "apply_activation_checkpointing", "checkpoint", "checkpoint_sequential")


def read_script(notes: Notes) -> Plan:
    """The Plan of the calls of a file; without a call that shards a model it is that of the training loop."""
    found = units(notes)
    optimizers = made_optimizers(notes)
    steps = optimizer_steps(notes, optimizers)
    plan = Plan(
        batch=read_batch(notes, steps),
        optimizer=read_optimizer(notes, optimizers),
        schedule=read_schedule(notes, steps),
        clipping=read_clipping(notes, steps),
        checkpoint=_checkpoint(notes),
        recompute=_recompute(notes),
    )
    _others(notes)
    return _sharded(notes, found, plan) if found else plan


def _sharded(notes: Notes, found: list[Unit], plan: Plan) -> Plan:
    sharding, ranks = read_sharding(notes, found)
    parallelism = read_parallelism(notes)
    update = {
        "batch": sized(plan.batch, ranks, parallelism.tensor),
        "precision": read_precision(notes, found, sharding, last_only(notes)),
        "sharding": sharding,
        "offload": read_offload(notes, found),
        "wrapping": read_wrapping(notes, found),
        "parallelism": parallelism,
    }
    return plan.model_copy(update=update)


def _recompute(notes: Notes) -> bool | None:
    events = [*notes.of_torch(*_RECOMPUTES), *notes.methods("gradient_checkpointing_enable")]
    if not events:
        return None
    notes.take(called(events[0].made), "recompute", True)
    return True


def _checkpoint(notes: Notes) -> Checkpoint:
    for event in notes.of_torch("save", "async_save"):
        function = event.made.function
        if "torch.distributed.checkpoint" in getattr(function, "name", ""):
            key = f"torch.distributed.checkpoint.{called(event.made)}"
            notes.take(key, "checkpoint.weights", "sharded")
            return Checkpoint(weights="sharded")
    return Checkpoint()


def _others(notes: Notes) -> None:
    """What stays in the script."""
    for event in notes.of_torch("compile"):
        note = "it stays in the script, and changes no number but by rounding"
        notes.say("torch.compile", True, "exact", note, node=event.made.node)
    for event in notes.of_torch("init_process_group"):
        backend = event.made.argument("backend", 0)
        notes.say("init_process_group", backend or "", "no-effect", "the launcher and the script do it")
