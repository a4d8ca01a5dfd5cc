"""The interpreter of compiled conditions: three-valued, and it remembers what it would have needed.

A comparison with something unknown (absent without default, unresolved "auto", wrong type) is unknown, and so is
its negation; a rule fires on true only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from dsconf.config.effective import BESIDE, Config, Facts
from dsconf.config.tables import spec_at
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.arguments import scheduler_known
from dsconf.formats.deepspeed.optimizers import optimizer_known
from dsconf.lint.optimizers import nearest_optimizer, nearest_scheduler
from dsconf.lint.words import Words, show

_Operation = Callable[["Scope", list[Any]], object]


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

    def at(self, path: str) -> tuple[Config | None, str]:
        """The Config that a path speaks of, None where that is not at hand, and the path within it.

        `ds.zero_optimization.stage` is that of the DeepSpeed config which belongs to this file.
        """
        name, _, rest = path.partition(".")
        return (self.config.beside.get(name), rest) if name in BESIDE else (self.config, path)

    def value(self, code: list[Any]) -> object:
        """The value of an expression, or UNKNOWN."""
        return _OPERATIONS[code[0]](self, code)

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


def _path(scope: Scope, code: list[Any]) -> object:
    path: str = code[1]
    config, place = scope.at(path)
    scope.reads.add(path)
    value = config.value(place) if config is not None else UNKNOWN
    if value is UNKNOWN:
        scope.unknown_keys.add(path)
    return value


def _fact(scope: Scope, code: list[Any]) -> object:
    derived = scope.facts.derived(code[1])
    scope.reads |= derived.paths
    if derived.value is UNKNOWN:
        scope.missing_context |= derived.missing_context
        scope.unknown_keys |= set() if derived.missing_context else derived.paths
    return derived.value


def _context(scope: Scope, code: list[Any]) -> object:
    value = scope.config.context.known(code[1])
    if value is None:
        scope.missing_context.add(code[1].partition(".")[0])
        return UNKNOWN
    return value


def _present(scope: Scope, code: list[Any]) -> object:
    config, path = scope.at(code[1])
    scope.reads.add(code[1])
    return UNKNOWN if config is None or config.may_hold(path) else config.present(path)


def _auto(scope: Scope, code: list[Any]) -> object:
    config, path = scope.at(code[1])
    scope.reads.add(code[1])
    return UNKNOWN if config is None or config.may_hold(path) else config.raw(path) == "auto"


def _spelt(scope: Scope, code: list[Any]) -> object:
    """The name of a key as the file writes it, else as its format usually calls it."""
    entry = scope.config.entry(code[1])
    if entry is not None:
        return Words(entry.key)
    return Words(spec_at(scope.config.table, code[1])[1].get("shown", code[1].rpartition(".")[2]))


def _junction(deciding: bool) -> _Operation:
    """`or` (deciding is true) and `and` (false): one deciding operand decides, whatever is unknown beside it."""

    def junction(scope: Scope, code: list[Any]) -> object:
        unknown = False
        for operand in code[1:]:
            value = _OPERATIONS[operand[0]](scope, operand)
            if value is UNKNOWN:
                unknown = True
            elif bool(value) is deciding:
                return deciding
        return UNKNOWN if unknown else not deciding

    return junction


def _not(scope: Scope, code: list[Any]) -> object:
    inner = scope.value(code[1])
    return UNKNOWN if inner is UNKNOWN else not inner


def _list(scope: Scope, code: list[Any]) -> object:
    elements = [scope.value(element) for element in code[1:]]
    return UNKNOWN if any(element is UNKNOWN for element in elements) else elements


def _object(scope: Scope, code: list[Any]) -> object:
    members = {key: scope.value(below) for key, below in code[1:]}
    return UNKNOWN if any(value is UNKNOWN for value in members.values()) else members


def _binary(compute: Callable[[Any, Any], object]) -> _Operation:
    def binary(scope: Scope, code: list[Any]) -> object:
        _, left, right = code
        left, right = _OPERATIONS[left[0]](scope, left), _OPERATIONS[right[0]](scope, right)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        try:
            return compute(left, right)
        except (TypeError, ValueError, ArithmeticError):
            return UNKNOWN

    return binary


def _named(function: Callable[[Any, str | None], object]) -> _Operation:
    """A predicate about a name, as the target version knows it."""

    def named(scope: Scope, code: list[Any]) -> object:
        argument = scope.value(code[1])
        return UNKNOWN if argument is UNKNOWN else function(argument, scope.config.context.deepspeed_version)

    return named


_OPERATIONS: dict[str, _Operation] = {
    "literal": lambda scope, code: code[1],
    "path": _path,
    "fact": _fact,
    "context": _context,
    "key": lambda scope, code: scope.key[code[1]],
    "present": _present,
    "auto": _auto,
    "spelt": _spelt,
    "since": lambda scope, code: scope.config.context.since(code[1][1]),
    "optimizer_known": _named(optimizer_known),
    "nearest_optimizer": _named(nearest_optimizer),
    "scheduler_known": _named(scheduler_known),
    "nearest_scheduler": _named(nearest_scheduler),
    "and": _junction(False),
    "or": _junction(True),
    "not": _not,
    "list": _list,
    "object": _object,
    "==": _binary(operator.eq),
    "!=": _binary(operator.ne),
    "<": _binary(operator.lt),
    "<=": _binary(operator.le),
    ">": _binary(operator.gt),
    ">=": _binary(operator.ge),
    "in": _binary(lambda item, container: item in container),
    "not in": _binary(lambda item, container: item not in container),
    "+": _binary(operator.add),
    "-": _binary(operator.sub),
    "*": _binary(operator.mul),
    "/": _binary(operator.truediv),
    "//": _binary(operator.floordiv),
    "%": _binary(operator.mod),
}
"""By the name that `dsconf.lint.compile` gives an operation what it does."""
