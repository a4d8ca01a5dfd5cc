"""From FSDP2 code to the Plan, without importing or running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping

import libcst as cst
from libcst.metadata import MetadataWrapper
from pydantic import ValidationError

from dsconf.document.node import Span, line_starts
from dsconf.document.source import Unusable
from dsconf.formats.fsdp2.read_constants import Emitted
from dsconf.formats.fsdp2.read_emitted import read_emitted
from dsconf.formats.fsdp2.read_known import recognise
from dsconf.formats.fsdp2.read_loop import optimizer_steps, read_batch, read_clipping, sized
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_optimizer import made_optimizers, read_optimizer
from dsconf.formats.fsdp2.read_parallel import read_parallelism
from dsconf.formats.fsdp2.read_precision import read_precision
from dsconf.formats.fsdp2.read_rest import read_rest
from dsconf.formats.fsdp2.read_run import Run
from dsconf.formats.fsdp2.read_schedule import read_schedule
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_sharding import last_only, read_offload, read_sharding
from dsconf.formats.fsdp2.read_units import REPLICATES, SHARDS, Unit, read_wrapping, units
from dsconf.formats.fsdp2.read_values import called
from dsconf.formats.reading import Reading
from dsconf.plan import Checkpoint, Plan

_RULE = "unreadable-file"
_OWN = {"prepare", "evaluate", "save_checkpoint"}
"""Functions by which a module is known as one that dsconf wrote: its other names are common ones."""
_FSDP1 = "FullyShardedDataParallel"
_NOTHING = "no call of torch's fully_shard, replicate or DistributedDataParallel is in it"


def read(text: str, path: str, given: Mapping[str, object] | None = None) -> Reading:
    """Read a Python file that shards a model with fully_shard, or has a copy of it on each rank.

    `given` are values by key of the Reading that count instead of those of the file, for what only a run determines:
    the label of their field is "--set KEY" where they do.

    Raises Unusable for text that is no Python, and for code that has no such call.
    """
    try:
        return _read(text, given or {})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"a setting of the Plan can't have the value {first['input']!r}: {place}: {first['msg']}"
        raise Unusable(_RULE, message, None, text) from None
    except RecursionError:
        raise Unusable(_RULE, "expressions are nested too deeply to be followed", None, text) from None


def _read(text: str, given: Mapping[str, object]) -> Reading:
    tree = _parsed(text)
    names = (*SHARDS, *REPLICATES, _FSDP1)
    if not any(name in text for name in names):  # a large file takes seconds to follow
        raise Unusable(_RULE, _NOTHING, None, text)
    known = recognise(tree)
    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        raise _no_python(text, error.raw_line, error.raw_column + 1) from None
    notes = Notes(Run(wrapper.module, _used(tree), frozenset(known.functions)), wrapper, given)
    if "parallelize" not in known.functions and not any(notes.of_torch(*SHARDS, *REPLICATES)):
        raise Unusable(_RULE, _nothing(notes), None, text)
    plan = _script(notes)
    if _OWN & {*known.functions}:
        plan = read_emitted(Emitted(notes, known), plan)
        notes.written = {
            **{name: notes.written[name] for name in _constants(tree) if name in notes.written},
            **notes.written,
        }
        for name in known.edited:
            note = f"dsconf writes {name} otherwise: it is read as any other code"
            notes.say(name, f"def {name}", "exact", note)
    return Reading(
        plan,
        notes.fields,
        notes.items,
        notes.remarks,
        notes.in_force,
        notes.labels,
        "fsdp2",
        notes.written,
    )


def _parsed(text: str) -> ast.Module:
    """The tree of Python's own parser, which stops at expressions that are nested too deeply."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the file's own code
            return ast.parse(text)
    except SyntaxError as error:
        raise _no_python(text, error.lineno or 1, error.offset or 1) from None
    except (ValueError, MemoryError):
        raise Unusable(_RULE, "it does not parse as Python 3", None, text) from None


def _used(tree: ast.Module) -> set[str]:
    """The names that a file uses, those of attributes included."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _constants(tree: ast.Module) -> list[str]:
    """The names that a file gives values to, in order."""
    return [
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _no_python(text: str, line: int, column: int) -> Unusable:
    starts = line_starts(text)
    start = min(starts[min(line, len(starts)) - 1] + max(column - 1, 0), max(len(text) - 1, 0))
    return Unusable(_RULE, f"it does not parse as Python 3 ({line}:{column})", Span(start, start + 1), text)


def _nothing(notes: Notes) -> str:
    for event in notes.of_torch(_FSDP1):
        place = notes.place(event.made.node)
        instead = "only that of fully_shard, replicate and DistributedDataParallel is"
        return f"{place}: FullyShardedDataParallel is FSDP1, whose code is not read: {instead}"
    return _NOTHING


# ---- code that somebody wrote ---------------------------------------------------------------------------

_RECOMPUTES = ("checkpoint_wrapper", "apply_activation_checkpointing", "checkpoint", "checkpoint_sequential")


def _script(notes: Notes) -> Plan:
    """The Plan of the calls of a file; without a call that shards a model it is that of the training loop."""
    found = units(notes)
    optimizers = made_optimizers(notes)
    steps = optimizer_steps(notes, optimizers)
    plan, ranks = _sharded(notes, found) if found else (Plan(), None)
    update = {
        "batch": sized(read_batch(notes, steps), ranks, plan.parallelism.tensor),
        "optimizer": read_optimizer(notes, optimizers, steps),
        "schedule": read_schedule(notes, steps),
        "clipping": read_clipping(notes, steps),
        "checkpoint": _checkpoint(notes),
        "recompute": _recompute(notes, steps),
    }
    read_rest(notes, found)
    return plan.model_copy(update=update)


def _sharded(notes: Notes, found: list[Unit]) -> tuple[Plan, int | None]:
    """What the calls that shard a model say, and the number of ranks where a mesh has it."""
    wrapping = read_wrapping(notes, found)
    sharding, ranks = read_sharding(notes, found)
    return Plan(
        precision=read_precision(notes, found, sharding, last_only(notes)),
        sharding=sharding,
        offload=read_offload(notes, found),
        wrapping=wrapping,
        parallelism=read_parallelism(notes),
    ), ranks


def _recompute(notes: Notes, steps: list[Event]) -> bool | None:
    events = [*notes.of_torch(*_RECOMPUTES), *notes.methods("gradient_checkpointing_enable")]
    if not events:
        return None
    key = called(events[0].made)
    notes.take(key, "recompute", True)
    notes.conditional(key, events[0], "it is called", steps)
    return True


def _checkpoint(notes: Notes) -> Checkpoint:
    for event in notes.of_torch("save", "async_save"):
        function = event.made.function
        if "torch.distributed.checkpoint" in getattr(function, "name", ""):
            key = f"torch.distributed.checkpoint.{called(event.made)}"
            notes.take(key, "checkpoint.weights", "sharded")
            return Checkpoint(weights="sharded")
    return Checkpoint()
