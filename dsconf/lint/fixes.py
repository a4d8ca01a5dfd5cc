"""From the fix that a rule page describes to edits of the file at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from dsconf.config.effective import Config
from dsconf.document.edit import Change, EditError
from dsconf.document.node import UNKNOWN, Document, Edit, Node

Read = Callable[[str], Document]
EDITORS = {"json": ("dsconf.document.edit", "Change"), "yaml": ("dsconf.document.yaml_edit", "YamlChange")}
"""By language the module and the class that edit a text of it, looked up where there is something to fix."""
Operation = tuple[str, str, object]
"""What to do with which key, and its new name, path or value."""


def edits_of(
    operations: Iterable[Operation], config: Config, key: int | None, doubled: bool, read: Read
) -> tuple[Edit, ...] | None:
    """The edits that do this; None where the text can't be edited so.

    `key` is the offset at which the finding's own entry begins, None without one, and `doubled` whether the fix is
    meant for a key that is written twice. `read` parses a text as the file was parsed.
    """
    change = _change(config.document, read)
    try:
        for operation, path, argument in operations:
            entry = None if path == "key" else config.entry(path)
            start = key if path == "key" else entry.key_span.start if entry else None
            if start is not None and change.written_twice(start) != doubled:
                raise EditError("which of the two is meant is open")
            _add(change, config, operation, path, start, argument)
        return change.edits()
    except EditError:
        return None


def _change(document: Document, read: Read) -> Change:
    """How a document of its language is edited."""
    module, name = EDITORS[document.language]
    change: Change = getattr(import_module(module), name)(document, read)
    return change


def _add(
    change: Change, config: Config, operation: str, path: str, start: int | None, argument: object
) -> None:
    if operation == "set":
        if argument is UNKNOWN:
            raise EditError("the value is not known")
        if start is not None:
            change.set(start, argument)
        elif path != "key":
            _insert(change, config, path, argument)
    elif start is None:
        pass  # nothing to take away
    elif operation == "remove":
        change.remove(start)
    elif operation == "rename":
        change.rename(start, str(argument))
    else:
        _insert(change, config, str(argument), change.written(start))
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
