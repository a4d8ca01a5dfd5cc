"""Methods of dicts and lists: each gives the dict or list as it is then, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsconf.formats.fsdp2.read_folding import merged
from dsconf.formats.fsdp2.read_values import ABSENT, Choice, Item, Known, Seq, Table, Value, plain


class Done(NamedTuple):
    """What a method gives (ABSENT where that is not known), and what it leaves."""

    result: Value
    changed: Table | Seq


def of_list(base: Seq, name: str, args: Sequence[Value], tests: tuple[Value, ...]) -> Done | None:
    """A method of a list or set; `tests` hold where it is called. None for one that is not followed."""
    if name not in ("append", "add") or len(args) != 1:
        return None
    found = args[0]
    if isinstance(found, Item):
        found = Item(found.of, (*found.tests, *tests))
    return Done(Known(None), Seq((*base.items, found)))


def of_dict(base: Table, name: str, args: Sequence[Value], keywords: Table) -> Done | None:
    """A method of a dict; None for one that is not followed."""
    if name == "copy":
        return Done(base, base)
    if name == "update":
        changed = base
        for each in (*args, keywords):
            changed = extended(changed, each)
        return Done(Known(None), changed)
    key = plain(args[0]) if args else None
    if not isinstance(key, str | int):
        return None
    default = args[1] if len(args) > 1 else Known(None)
    if name == "get" and base.open is None:
        return Done(base.items.get(key, default), base)
    if name == "setdefault" and key not in base.items:
        return Done(default, Table({**base.items, key: default}, base.open))
    if name == "pop":
        left = {other: value for other, value in base.items.items() if other != key}
        return Done(base.items.get(key, ABSENT), Table(left, base.open))
    return None


def extended(table: Table, more: Value) -> Table:
    """A dict with the items of another one."""
    match more:
        case Table(items=items, open=open_):
            return Table({**table.items, **items}, table.open or open_)
        case Choice(test=test, yes=yes, no=no):
            found = merged(test, extended(table, yes), extended(table, no))
            return found if isinstance(found, Table) else Table(table.items, more)
        case Known(value=None):
            return table
        case Seq(items=()):
            return table
        case _:
            return Table(table.items, more)
