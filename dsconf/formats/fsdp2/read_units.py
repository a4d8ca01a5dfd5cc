"""Which modules the calls of fully_shard make units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Attr,
    Choice,
    Class,
    Instance,
    Item,
    Made,
    Op,
    Ref,
    Seq,
    Spread,
    Value,
    called,
    origin,
    plain,
    torch_name,
)
from dsconf.plan import Wrapping

Path = tuple[object, ...]
Kind = Literal["root", "block", "end", "part"]


class Unit(NamedTuple):
    """A call that makes modules units."""

    event: Event
    kind: Kind
    """The whole model, the repeated layers, what stands beside them, or a part of a layer."""

    @property
    def made(self) -> Made:
        """The call."""
        return self.event.made


SHARDS = ("fully_shard",)
REPLICATES = ("replicate", "DistributedDataParallel")


def units(notes: Notes) -> list[Unit]:
    """The calls that shard or replicate modules, in order."""
    events = list(notes.of_torch(*SHARDS, *REPLICATES))
    targets = [_target(event.made) for event in events]
    paths = {path_of(target) for target in targets if not isinstance(target, Seq)}
    kinds = [_kind(target, paths) for target in targets]
    roots = [target for kind, target in zip(kinds, targets, strict=True) if kind == "root"]
    if not all(map(_is_layer, roots)):
        # A layer of torch that the file makes is none beside a model.
        kinds = [
            "end" if kind == "root" and _is_layer(target) else kind
            for kind, target in zip(kinds, targets, strict=True)
        ]
    return _one_way(notes, [Unit(event, kind) for event, kind in zip(events, kinds, strict=True)])


def _one_way(notes: Notes, found: list[Unit]) -> list[Unit]:
    """Where a file can both shard and replicate, the calls that shard."""
    shards = [unit for unit in found if called(unit.made) in SHARDS]
    if shards and len(shards) < len(found):
        other = next(unit for unit in found if called(unit.made) in REPLICATES)
        note = "the file has another way, which is not taken: fully_shard"
        notes.say(
            called(other.made), True, "needs-value", note, node=other.made.node, action="leave one of them"
        )
    return shards or found


def _target(made: Made) -> Value:
    return made.argument("module", 0) or made


def _kind(target: Value, paths: set[Path]) -> Kind:
    if isinstance(target, Seq):
        return "end"
    path = path_of(target)
    if "[]" in path:
        return "part" if path[-1] != "[]" and path.index("[]") < len(path) - 1 else "block"
    above = any(other != path and path[: len(other)] == other for other in paths)
    return "end" if above else "root"


def is_built_here(target: Value) -> bool:
    """Whether a model is an object of a class of the file, or of torch."""
    return isinstance(origin(target), Instance) or _is_layer(target)


def _is_layer(target: Value) -> bool:
    made = origin(target)
    return isinstance(made, Made) and bool(torch_name(made.function))


_INSIDE = (
    "modules", "children", "named_modules", "named_children", "values", "items", "get_submodule", "parameters",
    "named_parameters",
)  # fmt: skip
"""Methods that give modules inside of one."""


def path_of(value: Value) -> Path:
    """How a module is reached: what it begins with, then names, "[]" for one of several."""
    value = origin(value)
    match value:
        case Attr(base=base, name=name):
            return (*path_of(base), name)
        case Item(of=Made(function=function, args=(first, *_))) if not isinstance(function, Attr):
            # What a function finds in a model.
            inside = not torch_name(function)
            return (*path_of(first), "[]") if inside else (id(value), "[]")
        case Item(of=of):
            return (*path_of(of), "[]")
        case Op(symbol="[]", left=left):
            return (*path_of(left), "[]")
        case Made(function=Attr(base=base, name=name)) if name in _INSIDE:
            return path_of(base)
        case Choice(yes=yes):
            return path_of(yes)
        case Seq(items=(first, *_)):
            return path_of(first)
        case Spread(of=of):
            return path_of(of)
        case Instance(scope=scope):
            return (scope,)
        case _:
            return (id(value),)


def setting(units: Sequence[Unit], name: str, notes: Notes) -> tuple[Value | None, Made | None]:
    """An argument of the calls for blocks, or of the only ones; says so where they differ.

    Where arguments are unpacked that are not known, it may be among them: then it is what they come from.
    """
    of_blocks = [unit for unit in units if unit.kind == "block"] or [
        unit for unit in units if unit.kind == "root"
    ]
    chosen = of_blocks or list(units)
    values = [(unit.made.argument(name) or unit.made.open, unit) for unit in chosen]
    first, unit = values[0]
    for other, another in values[1:]:
        if not _same(first, other):
            seen = f"{notes.text(first)} at {notes.place(unit.made.node)}"
            note = f"{seen}, {notes.text(other)} at {notes.place(another.made.node)}: the first one is taken"
            notes.remark(f"fully_shard.{name}", "approximate", note)
    return first, unit.made


def _same(first: Value | None, second: Value | None) -> bool:
    if first is second:
        return True
    if first is None or second is None:
        return False
    one, other = plain(first), plain(second)
    if one is not UNKNOWN or other is not UNKNOWN:
        return bool(one == other)
    if torch_name(first) or torch_name(second):
        return torch_name(first) == torch_name(second)
    if isinstance(first, Made) and isinstance(second, Made):
        same_call = torch_name(first.function) == torch_name(second.function) != ""
        keys = {*first.keywords} | {*second.keywords}
        return (
            same_call
            and len(first.args) == len(second.args)
            and all(_same(a, b) for a, b in zip(first.args, second.args, strict=True))
            and all(_same(first.keywords.get(key), second.keywords.get(key)) for key in keys)
        )
    return False


def read_wrapping(notes: Notes, found: list[Unit]) -> Wrapping:
    """The classes of the blocks, and whether the ends are units of their own."""
    blocks = [unit for unit in found if unit.kind == "block"]
    key = "fully_shard.module"
    if not blocks:
        root = next((unit for unit in found if unit.kind == "root" and called(unit.made) in SHARDS), None)
        if root is not None:
            notes.take(key, "wrapping.root_only", _target(root.made))
            return Wrapping(root_only=True)
        return Wrapping()
    classes: list[str] = []
    open_ = False
    for unit in blocks:
        names = list(_classes(unit))
        open_ |= not names
        classes += [name for name in names if name not in classes]
    first = blocks[0].made
    if classes and not open_:
        shown = classes if len(classes) > 1 else classes[0]
        notes.take(key, "wrapping.block_classes", shown)
    else:
        what = notes.text(_target(first))
        note = f"blocks are {what}: their class is not in the file (else --blocks)"
        notes.say(key, _target(first), "exact", note, node=first.node)
    ends = [unit for unit in found if unit.kind == "end"]
    for unit in ends[:1]:
        note = "modules beside the blocks are units of their own; no number changes where they are not"
        notes.say("fully_shard.module (ends)", _target(unit.made), "exact", note, node=unit.made.node)
    for unit in [unit for unit in found if unit.kind == "part"][:1]:
        note = "parts of blocks are units of their own; no number changes where whole blocks are"
        notes.say("fully_shard.module (parts)", _target(unit.made), "close", note, node=unit.made.node)
    if not any(unit.kind == "root" for unit in found):
        note = "no call for the model itself: parameters outside of the blocks are not sharded"
        notes.say("fully_shard.module (root)", None, "approximate", note, node=first.node, written=False)
    return Wrapping(block_classes=() if open_ else tuple(classes), separate_ends=bool(ends))


def _classes(unit: Unit) -> Iterator[str]:
    """The names of the classes that the tests around a call ask for."""
    target = _target(unit.made)
    tests = target.tests if isinstance(target, Item) else ()
    for test in (*tests, *(condition.test for condition in unit.event.conditions if condition.holds)):
        yield from _asked(test)
    yield from _listed(target)


def _asked(test: Value) -> Iterator[str]:
    match test:
        case Made(function=Ref(name="isinstance"), args=(_, classes)):
            yield from _names(classes)
        case Op(symbol="and" | "or", left=left, right=right):
            yield from _asked(left)
            yield from _asked(right)
        case Op(symbol="==" | "in" | "is", left=Attr(base=base, name="__name__"), right=right) if _is_type(
            base
        ):
            names = plain(right)
            yield from (names,) if isinstance(names, str) else names if names is not UNKNOWN else ()
        case Op(symbol="==" | "in" | "is", left=left, right=right) if _is_type(left):
            yield from _names(right)
        case _:
            pass


def _is_type(value: Value) -> bool:
    match value:
        case Made(function=Ref(name="type")) | Attr(name="__class__"):
            return True
        case _:
            return False


def _names(classes: Value) -> Iterator[str]:
    """The names of one or several classes."""
    match classes:
        case Ref(name=name):
            yield name.rpartition(".")[2]
        case Class(node=node):
            yield node.name.value
        case Seq(items=items):
            for item in items:
                yield from _names(item)
        case _:
            pass


def _listed(target: Value) -> Iterator[str]:
    """The class of the elements of an nn.ModuleList that the file itself fills."""
    match target:
        case Item(of=Made(args=(Seq(items=items), *_)) as of) if called(of) == "ModuleList":
            for item in items:
                inner = item.of if isinstance(item, Spread) else item
                for each in inner.items if isinstance(inner, Seq) else (inner,):
                    if isinstance(each, Instance):
                        yield each.of.node.name.value
        case _:
            pass
