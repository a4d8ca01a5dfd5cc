"""From FSDP2 code to the Plan, without importing or running it."""

from __future__ import annotations

import ast

import libcst as cst
from libcst.metadata import MetadataWrapper

from dsconf.document.node import Span, line_starts
from dsconf.document.source import Unusable
from dsconf.formats.fsdp2.read_emitted import Emitted, read_emitted
from dsconf.formats.fsdp2.read_known import recognise
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_run import Run
from dsconf.formats.fsdp2.read_script import read_script
from dsconf.formats.fsdp2.read_units import REPLICATES, SHARDS
from dsconf.formats.reading import Reading

_RULE = "unreadable-file"


def read(text: str, path: str) -> Reading:
    """Read a Python file that shards a model with fully_shard, or has a copy of it on each rank.

    Raises Unusable for text that is no Python, and for code that has no such call.
    """
    try:
        return _read(text, path)
    except RecursionError:
        raise Unusable(_RULE, "expressions are nested too deeply to be followed", None, text) from None


def _read(text: str, path: str) -> Reading:
    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        start = line_starts(text)[error.raw_line - 1] + error.raw_column
        span = Span(start, start + 1)
        place = f"{error.raw_line}:{error.raw_column + 1}"
        raise Unusable(_RULE, f"it does not parse as Python 3 ({place})", span, text) from None
    known = recognise(ast.parse(text))
    notes = Notes(Run(wrapper.module, frozenset(known.functions)), wrapper)
    if "parallelize" not in known.functions and not any(notes.of_torch(*SHARDS, *REPLICATES)):
        raise Unusable(_RULE, _nothing(notes), None, text)
    plan = read_script(notes)
    if known.functions:
        plan = read_emitted(Emitted(notes, known), plan)
        for name in known.edited:
            note = f"dsconf writes {name} otherwise: it is read as any other code"
            notes.say(name, f"def {name}", "exact", note)
    return Reading(
        plan,
        notes.fields,
        notes.items,
        notes.remarks,
        notes.in_force,
        {},
        "fsdp2",
        notes.written,
    )


def _nothing(notes: Notes) -> str:
    for event in notes.of_torch("FullyShardedDataParallel"):
        place = notes.place(event.made.node)
        return f"{place}: FullyShardedDataParallel is FSDP1, whose code is not read: only fully_shard is"
    return "no call of torch's fully_shard, replicate or DistributedDataParallel is in it"
