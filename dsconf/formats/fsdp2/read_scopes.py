"""The names of a file, with the values that they have while it is followed."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import Any, NamedTuple

import libcst as cst

from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Attr,
    Choice,
    Class,
    Function,
    Instance,
    Item,
    Known,
    Made,
    Op,
    Opaque,
    Ref,
    Seq,
    Spread,
    Table,
    Value,
    plain,
)

Heap = dict[tuple[int, str], Value]


class Condition(NamedTuple):
    """A test, and how it came out where a call is made."""

    test: Value
    holds: bool


class Event(NamedTuple):
    """A call of something that the file does not define, or an assignment to its attribute."""

    made: Made
    conditions: tuple[Condition, ...]
    contexts: tuple[Value, ...]
    """The with statements around it."""
    loops: tuple[Value, ...]
    """What the loops around it go over."""


@dataclass
class Frame:
    """A call of a function of the file."""

    node: cst.CSTNode
    scope: int
    returned: list[Value]
    globals: set[str]


class Scopes:
    """What is known of a file: its names, and its calls so far."""

    def __init__(self, module: cst.Module) -> None:
        self.module = module
        self.events: list[Event] = []
        self._heap: Heap = {}
        self._parents: list[int | None] = [None]
        self._frames = [Frame(module, 0, [], set())]
        self._kept: set[int] = {0}
        self._conditions: tuple[Condition, ...] = ()
        self._contexts: tuple[Value, ...] = ()
        self._loops: tuple[Value, ...] = ()

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression stands for."""
        raise NotImplementedError

    @property
    def exhausted(self) -> bool:
        """Whether the file was too long to be followed to its end."""
        raise NotImplementedError

    def constant(self, name: str) -> Value | None:
        """The value of a name of the module; None where there is none."""
        return self._heap.get((0, name))

    def text(self, node: cst.CSTNode) -> str:
        """A piece of code as it is written."""
        return self.module.code_for_node(node)

    def _record(self, made: Made) -> Made:
        self.events.append(Event(made, self._conditions, self._contexts, self._loops))
        return made

    @property
    def _frame(self) -> Frame:
        return self._frames[-1]

    def _scope(self, parent: int | None) -> int:
        self._parents.append(parent)
        return len(self._parents) - 1

    def _leave(self, scope: int) -> None:
        """Forget the names of a call that has ended, unless a function that it made may use them."""
        self._frames.pop()
        if scope not in self._kept:
            self._heap = {key: value for key, value in self._heap.items() if key[0] != scope}

    def _key(self, name: str) -> tuple[int, str]:
        if name in self._frame.globals:
            return (0, name)
        return (self._frame.scope, name)

    def _set(self, name: str, value: Value) -> None:
        self._heap[self._key(name)] = value

    def _name(self, node: cst.Name) -> Value:
        scope: int | None = self._frame.scope
        while scope is not None:
            found = self._heap.get((scope, node.value))
            if found is not None:
                return found
            scope = self._parents[scope]
        constants = {"True": True, "False": False, "None": None, "__name__": "__main__"}
        if node.value in constants:
            return Known(constants[node.value])
        return Ref(node.value) if hasattr(builtins, node.value) else Opaque(node.value, node)

    def _import(self, alias: cst.ImportAlias) -> None:
        full = self.text(alias.name)
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            self._set(alias.asname.name.value, Ref(full))
        else:
            first = full.partition(".")[0]
            self._set(first, Ref(first))

    def _import_from(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        module = ("." * len(node.relative)) + (self.text(node.module) if node.module is not None else "")
        for alias in node.names:
            name = alias.evaluated_name
            self._set(alias.evaluated_alias or name, Ref(f"{module}.{name}"))


def _one_line(source: str) -> str:
    """An expression without comments and line ends; a statement as it is."""
    try:
        return ast.unparse(ast.parse(source.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return " ".join(source.split())


def shown(scopes: Scopes, value: Value) -> Any:
    """A value as a report shows it: the constant, or what is written."""
    constant = plain(value)
    if constant is not UNKNOWN:
        return list(constant) if isinstance(constant, tuple) else constant
    match value:
        case Ref(name=name):
            return name
        case Opaque(node=cst.Param()) | Opaque(node=None):
            return value.text
        case Made(node=node) | Op(node=node) | Opaque(node=cst.CSTNode() as node):
            return _one_line(scopes.text(node))
        case Attr(node=cst.CSTNode() as node):
            return _one_line(scopes.text(node))
        case Attr(base=base, name=name):
            return f"{shown(scopes, base)}.{name}"
        case Choice(test=test, yes=yes, no=no):
            return f"{shown(scopes, yes)} if {shown(scopes, test)} else {shown(scopes, no)}"
        case Item(of=of):
            return f"an item of {shown(scopes, of)}"
        case Class(node=node):
            return node.name.value
        case Function(node=node):
            return node.name.value if isinstance(node, cst.FunctionDef) else "lambda"
        case Instance(of=of):
            return of.node.name.value
        case Seq(items=items):
            return [shown(scopes, item) for item in items]
        case Table(items=items):
            return {str(key): shown(scopes, item) for key, item in items.items()}
        case Spread(of=of):
            return f"*{shown(scopes, of)}"
        case _:
            return "?"
