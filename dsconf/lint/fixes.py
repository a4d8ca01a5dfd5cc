"""From the fix that a rule page describes to edits of the file at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsconf.config.effective import Config
from dsconf.document.edit import Change, EditError
from dsconf.document.node import UNKNOWN, Document, Node
from dsconf.lint.evaluate import Scope
from dsconf.lint.finding import Fix, printable


Read = Callable[[str], Document]


def fix_of(rule: dict[str, Any], scope: Scope, key: int | None, read: Read) -> Fix | None:
    """The fix of a finding; None where its rule has none for the case, or the text can't be edited so.

    `key` is the offset at which the finding's own entry begins, None without one; `read`
    parses a text as the file was parsed.
    """
    fix = scope.first(rule["fix"])
    if fix is None:
        return None
    change = Change(scope.config.document, read)
    try:
        for operation, path, argument in fix["edits"]:
            entry = None if path == "key" else scope.config.entry(path)
            start = key if path == "key" else entry.key_span.start if entry else None
            if start is not None and rule["kind"] != "duplicate-key" and change.written_twice(start):
                raise EditError("which of the two is meant is open")
            _add(change, scope, operation, path, start, argument)
        edits = change.edits()
    except EditError:
        return None
    return Fix(scope.first(fix["safe"]) is True, printable(scope.text(fix["description"])), edits)


def _add(
    change: Change, scope: Scope, operation: str, path: str, start: int | None, argument: list[Any]
) -> None:
    if operation == "set":
        value = scope.value(argument)
        if value is UNKNOWN:
            raise EditError("the value is not known")
        if start is not None:
            change.set(start, value)
        elif path != "key":
            _insert(change, scope.config, path, value)
    elif start is None:
        pass  # nothing to take away
    elif operation == "remove":
        change.remove(start)
    elif operation == "rename":
        change.rename(start, scope.text(argument))
    else:
        _insert(change, scope.config, scope.text(argument), change.written(start))
        change.remove(start)


def _insert(change: Change, config: Config, path: str, value: object) -> None:
    """Write a key that is not there yet, with the sections that it needs. Raises EditError."""
    if config.present(path):
        raise EditError(f"{path} is written already")
    section, _, name = path.rpartition(".")
    while section and config.entry(section) is None:
        value = {name: value}
        section, _, name = section.rpartition(".")
    above = config.entry(section) if section else None
    holder: Node = above.node if above else config.document.root
    change.insert(holder, name, value)
