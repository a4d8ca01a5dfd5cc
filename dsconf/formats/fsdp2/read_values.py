"""What an expression of a Python file can stand for, as far as it is known without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import libcst as cst


@dataclass(frozen=True, eq=False)
class Value:
    """Anything; two values are the same where they are one object."""


@dataclass(frozen=True, eq=False)
class Known(Value):
    """A constant."""

    value: Any


@dataclass(frozen=True, eq=False)
class Ref(Value):
    """Something that another module defines, by its full name."""

    name: str


@dataclass(frozen=True, eq=False)
class Attr(Value):
    """An attribute of something that is not known."""

    base: Value
    name: str
    node: cst.CSTNode | None = None


@dataclass(frozen=True, eq=False)
class Made(Value):
    """What a call of a function returns that the file does not define."""

    function: Value
    args: tuple[Value, ...]
    keywords: Mapping[str, Value]
    node: cst.CSTNode
    open: Value | None = None
    """What more arguments come from, where they are not known."""

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """An argument by name or by position; None where it is not given."""
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None


@dataclass(frozen=True, eq=False)
class Op(Value):
    """An operation on something that is not known."""

    symbol: str
    left: Value
    right: Value
    node: cst.CSTNode


@dataclass(frozen=True, eq=False)
class Item(Value):
    """One of the items that something has."""

    of: Value
    tests: tuple[Value, ...] = ()
    """What holds for those that are taken."""


@dataclass(frozen=True, eq=False)
class Spread(Value):
    """All the items of something, in a sequence."""

    of: Value


@dataclass(frozen=True, eq=False)
class Seq(Value):
    """A list, a tuple or a set."""

    items: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Table(Value):
    """A dict with known keys."""

    items: Mapping[Any, Value]
    open: Value | None = None
    """What more keys come from, where they are not known."""


@dataclass(frozen=True, eq=False)
class Choice(Value):
    """One of two values: which one is not known."""

    test: Value
    yes: Value
    no: Value


@dataclass(frozen=True, eq=False)
class Opaque(Value):
    """What the file does not determine."""

    text: str
    node: cst.CSTNode | None = None


@dataclass(frozen=True, eq=False)
class Function(Value):
    """A function of the file; `owner` is what it is bound to."""

    node: cst.FunctionDef | cst.Lambda
    scope: int
    owner: Value | None = None


@dataclass(frozen=True, eq=False)
class Class(Value):
    """A class of the file."""

    node: cst.ClassDef
    scope: int
    bases: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Instance(Value):
    """An object of a class of the file; its attributes are in a scope of their own."""

    of: Class
    scope: int
    made: Made | None = field(default=None, repr=False)


ABSENT = Opaque("nothing")
"""What a key has where only some ways through the code set it."""

UNKNOWN = object()
"""What `plain` gives for a value that is not known."""


def plain(value: Value | None) -> Any:
    """The constant that a value is, sequences as tuples; UNKNOWN where it is none."""
    match value:
        case Known(value=constant):
            return constant
        case Seq(items=items):
            found = tuple(plain(item) for item in items)
            return UNKNOWN if UNKNOWN in found else found
        case Table(items=items, open=None):
            table = {key: plain(item) for key, item in items.items()}
            return UNKNOWN if any(each is UNKNOWN for each in table.values()) else table
        case Choice(yes=yes, no=no):
            first, second = plain(yes), plain(no)
            same = type(first) is type(second) and first == second
            return first if same else UNKNOWN
        case _:
            return UNKNOWN


def torch_name(value: Value | None) -> str:
    """The last part of the name of something of torch, whatever module of torch it was imported from; else ""."""
    if isinstance(value, Ref) and value.name.split(".")[0] in ("torch", "torchvision"):
        return value.name.rpartition(".")[2]
    return ""


def called(made: Made) -> str:
    """The name of the function or method that was called, without what it belongs to."""
    return made.function.name.rpartition(".")[2] if isinstance(made.function, Ref | Attr) else ""


def choices(value: Value | None) -> Iterator[Value]:
    """Everything that a value may be."""
    if isinstance(value, Choice):
        yield from choices(value.yes)
        yield from choices(value.no)
    elif value is not None:
        yield value


_SAME_MODULE = (
    "to", "cuda", "cpu", "float", "half", "bfloat16", "double", "train", "eval", "requires_grad_", "to_empty", "apply",
    "compile",
)  # fmt: skip
_WRAPPERS = (
    "compile", "fully_shard", "replicate", "DistributedDataParallel", "parallelize_module", "checkpoint_wrapper",
)  # fmt: skip


def origin(value: Value) -> Value:
    """The module that a value is, before it was moved, compiled or wrapped."""
    while True:
        match value:
            case Made(function=Attr(base=base, name=name)) if name in _SAME_MODULE:
                value = base
            case Made(function=Ref(), args=(first, *_)) if called(value) in _WRAPPERS:
                value = first
            case Attr(base=base, name="module"):
                value = base
            case Choice(yes=yes, no=no) if origin(yes) is origin(no):
                value = yes
            case _:
                return value


def is_parameters(value: Value) -> Value | None:
    """The module whose parameters a value iterates over, or picks from; None for anything else."""
    match value:
        case Made(function=Attr(base=base, name="parameters" | "named_parameters")):
            return base
        case Item(of=of) | Spread(of=of):
            return is_parameters(of)
        case Made(function=Ref(name="filter"), args=(_, of, *_)):
            return is_parameters(of)
        case Made(function=Ref(name="list" | "tuple" | "iter"), args=(of, *_)):
            return is_parameters(of)
        case Seq(items=items):
            return next((owner for owner in map(is_parameters, items) if owner is not None), None)
        case _:
            return None
