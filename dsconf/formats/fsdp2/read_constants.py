"""The choices and constants of a module that dsconf has emitted, as values."""

from __future__ import annotations

from typing import Any

import libcst as cst

from dsconf.formats.fsdp2.read_dtypes import dtype_of, given_dtype
from dsconf.formats.fsdp2.read_known import Known
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_values import UNKNOWN, Value, plain
from dsconf.plan import Unresolved


class Emitted:
    """What is known of a module, as values and choices."""

    def __init__(self, notes: Notes, known: Known) -> None:
        self.notes = notes
        self.known = known

    def has(self, function: str) -> bool:
        """Whether a function is as dsconf writes it."""
        return function in self.known.functions

    def part(self, function: str) -> str:
        """The part that a function comes from, and its name there."""
        return self.known.functions.get(function, "")

    def on(self, flag: str) -> bool:
        """Whether a choice was made."""
        return self.known.state.flags.get(flag, False)

    def takes(self, constant: str) -> bool:
        """Whether the code uses a constant, and has not another one in its place."""
        return self.known.state.constants.get(constant, "") in (constant, constant.lower())

    def value(self, constant: str) -> Value | None:
        """What stands for a constant; None where it is left out."""
        source = self.known.state.constants.get(constant, "")
        if source == constant:
            return self.notes.run.constant(constant)
        return self.notes.run.value(cst.parse_expression(source)) if source else None

    def get(self, constant: str, field: str) -> Any:
        """The value of a constant that goes to a field; Unresolved for a parameter, None where it is left out."""
        source = self.known.state.constants.get(constant, "")
        whole = (int,) if field.startswith("batch.") else ()
        given = self.notes.instead(source, field, *whole) if source else UNKNOWN
        if given is not UNKNOWN:
            return given
        value = self.value(constant)
        if source == constant.lower():
            self.notes.take(source, field, f"a parameter, {source}")
            return Unresolved(key=source)
        if value is None:
            return None
        known = plain(value)
        if known is UNKNOWN:
            return self.notes.open(constant, field, value)
        self.notes.take(constant, field, value)
        return known

    def dtype(self, constant: str, field: str) -> Any:
        """The dtype that a constant is."""
        source = self.known.state.constants.get(constant, "")
        given = given_dtype(self.notes.given.get(source))
        if given is not None:
            self.notes.instead(source, field, str)
            return given
        if source == constant.lower():
            self.notes.take(source, field, f"a parameter, {source}")
            return Unresolved(key=source)
        value = self.value(constant)
        found = dtype_of(value)
        if found is None and value is not None:
            return self.notes.left_open(constant, field, value)
        if source == constant:
            self.notes.take(constant, field, value)
        return found
