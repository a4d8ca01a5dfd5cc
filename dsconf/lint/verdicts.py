"""Verdicts of conditions, most of which need not be evaluated for every file.

A condition comes out the same for all files that write none of the keys which it reads, and files write few of all
keys. So what came out over one file serves for the next ones; a file that is linted alone pays nothing for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.config.tables import Spec
from dsconf.document.node import UNKNOWN

_MOST = 16
"""Circumstances to remember: within a run contexts differ where the reader of a file is guessed."""


class Scope(Protocol):
    """What evaluates one condition (see `dsconf.lint.evaluate`)."""

    reads: set[str]
    unknown_keys: set[str]
    missing_context: set[str]

    def value(self, code: list[Any]) -> object:
        """The value of an expression, or UNKNOWN."""


class Verdict(NamedTuple):
    """What became of a condition."""

    value: object
    """UNKNOWN, or true or false."""
    lacks: tuple[str, ...]
    """The fields of the context for lack of which alone it is unknown."""


class _Learnt(NamedTuple):
    condition: list[Any]
    verdict: Verdict
    reads: frozenset[str]
    """The verdict holds where none of these paths is written."""


class _Circumstances:
    """What conditions depend on beside the file, with the verdicts that do not depend on the file."""

    def __init__(self, table: Spec, context: Context) -> None:
        self.table = table
        self.context = context
        self.learnt: dict[str, _Learnt] = {}
        """By the name of the rule."""


_remembered: list[_Circumstances] = []


class Verdicts:
    """The verdicts over one file."""

    def __init__(self, config: Config, new_scope: Callable[[], Scope]) -> None:
        self._new_scope = new_scope
        paths = config.paths
        self._paths = paths or set()
        self._learnt: dict[str, _Learnt] = {}
        self._learns = False
        for each in _remembered:
            if each.table is config.table and each.context == config.context:
                if paths is not None:
                    self._learnt, self._learns = each.learnt, True
                break
        else:
            if len(_remembered) == _MOST:
                del _remembered[0]
            _remembered.append(_Circumstances(config.table, config.context))

    def of(self, rule: dict[str, Any]) -> Verdict:
        """The verdict of a rule with a condition."""
        learnt = self._learnt.get(rule["name"])
        if learnt is not None and learnt.reads.isdisjoint(self._paths) and learnt.condition is rule["when"]:
            return learnt.verdict
        return self._find(rule["name"], rule["when"])

    def _find(self, name: str, condition: list[Any]) -> Verdict:
        scope = self._new_scope()
        if self._learns and condition[0] == "and":
            value, reads = self._conjunction(condition[1:], scope)
        else:
            value, reads = scope.value(condition), scope.reads
        lacks = () if scope.unknown_keys or value is not UNKNOWN else tuple(sorted(scope.missing_context))
        verdict = Verdict(value, lacks)
        if self._learns and reads.isdisjoint(self._paths):
            self._learnt[name] = _Learnt(condition, verdict, frozenset(reads))
        return verdict

    def _conjunction(self, operands: list[Any], scope: Scope) -> tuple[object, set[str]]:
        """The value of a conjunction and what it depends on: one false operand decides, whatever the others are."""
        value: object = True
        reads: set[str] = set()
        for operand in operands:
            scope.reads = set()
            each = scope.value(operand)
            reads |= scope.reads
            if each is UNKNOWN:
                value = UNKNOWN if value is True else value
            elif not each:
                value = False
                if scope.reads.isdisjoint(self._paths):
                    return value, scope.reads
        return value, reads
