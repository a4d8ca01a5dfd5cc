"""The interpreter of compiled conditions: three-valued, and it remembers what it would have needed.

A comparison with something unknown (absent without default, unresolved "auto", wrong type) is unknown, and so is
its negation; a rule fires on true only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.arguments import scheduler_known
from dsconf.formats.deepspeed.optimizers import optimizer_known
from dsconf.lint.optimizers import nearest_optimizer, nearest_scheduler
from dsconf.lint.words import show

_BINARY: dict[str, Callable[[Any, Any], object]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, container: item in container,
    "not in": lambda item, container: item not in container,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_FUNCTIONS: dict[str, Callable[[Any, str | None], object]] = {
    "optimizer_known": optimizer_known,
    "nearest_optimizer": nearest_optimizer,
    "scheduler_known": scheduler_known,
    "nearest_scheduler": nearest_scheduler,
}


class Scope:
    """What a condition may read: the Config, its facts, and in schema rules the key in question."""

    def __init__(self, config: Config, facts: Facts, key: Mapping[str, object] | None = None) -> None:
        self.config = config
        self.facts = facts
        self.key = key or {}
        self.reads: set[str] = set()
        """Paths that were read in what was evaluated so far, by facts too."""
        self.unknown_keys: set[str] = set()
        """Paths (and facts of paths) that were unknown in what was evaluated so far."""
        self.missing_context: set[str] = set()
        """Fields of the context that were unknown in what was evaluated so far."""

    def value(self, code: list[Any]) -> object:
        """The value of an expression, or UNKNOWN."""
        name = code[0]
        if name == "literal":
            return code[1]
        if name in _BINARY:
            return self._binary(name, self.value(code[1]), self.value(code[2]))
        if name == "and" or name == "or":
            return self._junction(name == "or", code[1:])
        if name == "not":
            inner = self.value(code[1])
            return UNKNOWN if inner is UNKNOWN else not inner
        if name == "list":
            elements = [self.value(element) for element in code[1:]]
            return UNKNOWN if any(element is UNKNOWN for element in elements) else elements
        if name == "object":
            members = {key: self.value(below) for key, below in code[1:]}
            return UNKNOWN if any(value is UNKNOWN for value in members.values()) else members
        if name == "since":
            return self.config.context.since(code[1][1])
        if name in _FUNCTIONS:
            argument = self.value(code[1])
            return (
                UNKNOWN
                if argument is UNKNOWN
                else _FUNCTIONS[name](argument, self.config.context.deepspeed_version)
            )
        return self._leaf(name, code[1])

    def _junction(self, deciding: bool, operands: list[list[Any]]) -> object:
        """`or` (deciding is true) and `and` (false): one deciding operand decides, whatever is unknown beside it."""
        unknown = False
        for operand in operands:
            value = self.value(operand)
            if value is UNKNOWN:
                unknown = True
            elif bool(value) is deciding:
                return deciding
        return UNKNOWN if unknown else not deciding

    def _binary(self, name: str, left: object, right: object) -> object:
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        try:
            return _BINARY[name](left, right)
        except (TypeError, ValueError, ArithmeticError):
            return UNKNOWN

    def _leaf(self, name: str, argument: str) -> object:
        if name in ("present", "auto"):
            self.reads.add(argument)
            if self.config.may_hold(argument):
                return UNKNOWN
            return self.config.present(argument) if name == "present" else self.config.raw(argument) == "auto"
        if name == "key":
            return self.key[argument]
        if name == "context":
            value = self.config.context.known(argument)
            if value is None:
                self.missing_context.add(argument.partition(".")[0])
            return UNKNOWN if value is None else value
        if name == "fact":
            derived = self.facts.derived(argument)
            self.reads |= derived.paths
            if derived.value is UNKNOWN:
                self.missing_context |= derived.missing_context
                self.unknown_keys |= set() if derived.missing_context else derived.paths
            return derived.value
        self.reads.add(argument)
        value = self.config.value(argument)
        if value is UNKNOWN:
            self.unknown_keys.add(argument)
        return value

    def first(self, cases: list[list[Any]]) -> Any:
        """The value of the first case whose condition is true (or that has none), None where there is none."""
        for condition, result in cases:
            if condition is None or self.value(condition) is True:
                return result
        return None

    def text(self, template: list[str | list[Any]] | None) -> str:
        """A message with its pieces filled in."""
        pieces = template or []
        return "".join(piece if isinstance(piece, str) else show(self.value(piece)) for piece in pieces)

    def operations(self, edits: list[list[Any]]) -> list[tuple[str, str, object]]:
        """The edits of a fix with their arguments: a value to set, or a name or path in words."""
        return [
            (operation, path, self.value(argument) if operation == "set" else self.text(argument))
            for operation, path, argument in edits
        ]
