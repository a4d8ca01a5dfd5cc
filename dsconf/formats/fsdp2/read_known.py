"""Recognises the functions of `parts/` in a module, and the choices that the emitter made in them: `emit` backwards.

A function is known if it is that of a part but for what the emitter changes: branches of flags that are folded away,
constants that are parameters or other values, keyword arguments that are left out. Comments and docstrings don't count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PARTS = Path(__file__).parent / "parts"
_RENAMED = {"optimizer": "build_optimizer"}
"""Parts whose functions all get one name."""
_ANY_NAME = ("StepLR",)
"""Names in parts that stand for another one, apart from the constants."""
_Definition = ast.FunctionDef | ast.ClassDef


class State(NamedTuple):
    """What a match has settled so far."""

    flags: Mapping[str, bool] = {}
    constants: Mapping[str, str] = {}
    """By constant of the parts the expression that stands in its place: its own name where it has a value, that in
    lower case where it is a parameter, "" where the argument is left out."""


class Known(NamedTuple):
    """What of a module is known."""

    functions: Mapping[str, str]
    """By function the part that it comes from, as `part.name`."""
    state: State
    edited: Sequence[str]
    """Functions that parts have under this name, but otherwise."""


def recognise(tree: ast.Module) -> Known:
    """What of a module stands in parts."""
    state = State()
    functions: dict[str, str] = {}
    edited: list[str] = []
    for node in tree.body:
        if not isinstance(node, _Definition):
            continue
        templates = _templates().get(node.name, [])
        for part, template in templates:
            found = next(_definition(template, node, state), None)
            if found is not None:
                state = found
                functions[node.name] = f"{part}.{template.name}"
                break
        else:
            if templates:
                edited.append(node.name)
    return Known(functions, state, edited)


@cache
def _templates() -> Mapping[str, list[tuple[str, _Definition]]]:
    """By name in modules the definitions of the parts."""
    found: dict[str, list[tuple[str, _Definition]]] = {}
    for path in sorted(_PARTS.glob("[a-z]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, _Definition):
                found.setdefault(_RENAMED.get(path.stem, node.name), []).append((path.stem, node))
    return found


def _definition(template: _Definition, node: _Definition, state: State) -> Iterator[State]:
    if isinstance(template, ast.ClassDef) or isinstance(node, ast.ClassDef):
        if type(template) is type(node):
            assert isinstance(template, ast.ClassDef)
            yield from _Match(frozenset()).node(template, node, state)
        return
    more = frozenset(arg.arg for arg in node.args.kwonlyargs)
    match = _Match(more)
    if [arg.arg for arg in template.args.args] == [arg.arg for arg in node.args.args]:
        yield from match.body(_code(template.body), _code(node.body), state)


def _code(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without a docstring."""
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if is_text else body


class _Match:
    """Goes through the code of a part and of a module side by side; each step yields all that it could mean."""

    def __init__(self, parameters: frozenset[str]) -> None:
        self.parameters = parameters
        """Keyword-only parameters of the function of the module."""

    def body(self, template: list[ast.stmt], body: list[ast.stmt], state: State) -> Iterator[State]:
        """Statements."""
        if not template:
            if not body:
                yield state
            return
        first, *rest = template
        flag = first.test.id if isinstance(first, ast.If) and isinstance(first.test, ast.Name) else ""
        if isinstance(first, ast.If) and flag.isupper():
            for choice, branch in ((True, first.body), (False, first.orelse)):
                chosen = _with_flag(state, flag, choice)
                if chosen is not None:
                    yield from self.body([*branch, *rest], body, chosen)
            return
        if body:
            for found in self.node(first, body[0], state):
                yield from self.body(rest, body[1:], found)

    def node(self, template: ast.AST, node: ast.AST, state: State) -> Iterator[State]:
        """A statement or an expression."""
        match template, node:
            case ast.Name(id=name), _ if name.isupper() and isinstance(node, ast.expr):
                yield from self._constant(name, node, state)
            case ast.Attribute(value=base, attr=attr), ast.Attribute(value=other, attr=found) if (
                attr in _ANY_NAME
            ):
                for each in self.node(base, other, state):
                    yield from _with_constant(each, attr, found)
            case ast.Call(), ast.Call():
                for found_ in self.node(template.func, node.func, state):
                    for each in self._list(template.args, node.args, found_):
                        yield from self._keywords(template.keywords, node.keywords, each)
            case ast.For(iter=ast.IfExp(test=ast.Name(id=flag)) as items), ast.For() if flag.isupper():
                for choice, source in ((True, items.body), (False, items.orelse)):
                    chosen = _with_flag(state, flag, choice)
                    if chosen is not None:
                        loop = ast.For(template.target, source, template.body, template.orelse)
                        yield from self.node(loop, node, chosen)
            case ast.FunctionDef(), ast.FunctionDef():
                same = ast.dump(template.args) == ast.dump(node.args) or _names(template) == _names(node)
                if same and template.name == node.name:
                    yield from self.body(_code(template.body), _code(node.body), state)
            case _:
                if type(template) is type(node):
                    yield from self._fields(template, node, list(template._fields), state)

    def _fields(self, template: ast.AST, node: ast.AST, names: list[str], state: State) -> Iterator[State]:
        while names and names[0] in ("ctx", "type_comment", "annotation", "returns"):
            names = names[1:]
        if not names:
            yield state
            return
        mine, other = getattr(template, names[0], None), getattr(node, names[0], None)
        for found in self._any(mine, other, state):
            yield from self._fields(template, node, names[1:], found)

    def _any(self, template: object, other: object, state: State) -> Iterator[State]:
        if isinstance(template, ast.AST) and isinstance(other, ast.AST):
            yield from self.node(template, other, state)
        elif isinstance(template, list) and isinstance(other, list):
            if any(isinstance(each, ast.stmt) for each in [*template, *other]):
                yield from self.body(_code(template), _code(other), state)
            else:
                yield from self._list(template, other, state)
        elif type(template) is type(other) and template == other:
            yield state

    def _list(self, template: Sequence[object], other: Sequence[object], state: State) -> Iterator[State]:
        if len(template) != len(other):
            return
        if not template:
            yield state
            return
        for found in self._any(template[0], other[0], state):
            yield from self._list(template[1:], other[1:], found)

    def _keywords(
        self, template: list[ast.keyword], keywords: list[ast.keyword], state: State
    ) -> Iterator[State]:
        if not template:
            if all(_is_handed_down(each, self.parameters) for each in keywords):
                yield state
            return
        first, *rest = template
        value: ast.expr = first.value
        if isinstance(value, ast.IfExp) and isinstance(value.test, ast.Name) and value.test.id.isupper():
            on = _with_flag(state, value.test.id, True)
            off = _with_flag(state, value.test.id, False)
            if on is not None:
                yield from self._keywords([ast.keyword(first.arg, value.body), *rest], keywords, on)
            if off is not None:
                instead = value.orelse
                alone = isinstance(instead, ast.Constant) and instead.value is None
                kept = [] if alone else [ast.keyword(first.arg, instead)]
                for left in ([], kept) if kept else ([],):
                    yield from self._keywords([*left, *rest], keywords, off)
            return
        if keywords and keywords[0].arg == first.arg:
            for found in self.node(value, keywords[0].value, state):
                yield from self._keywords(rest, keywords[1:], found)
        elif isinstance(value, ast.Name) and value.id.isupper():
            for found in _with_constant(state, value.id, ""):
                yield from self._keywords(rest, keywords, found)

    def _constant(self, name: str, node: ast.expr, state: State) -> Iterator[State]:
        """Something stands for a constant: it, a parameter, or another value, but no variable and no call."""
        if isinstance(node, ast.Name) and not (node.id.isupper() or node.id in self.parameters):
            return
        if not any(isinstance(part, ast.Call) for part in ast.walk(node)):
            yield from _with_constant(state, name, ast.unparse(node))


def _names(node: ast.FunctionDef) -> list[str]:
    return [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _is_handed_down(keyword: ast.keyword, parameters: frozenset[str]) -> bool:
    """Whether an argument is a parameter of the function around it, under the same name."""
    value = keyword.value
    return isinstance(value, ast.Name) and value.id == keyword.arg and value.id in parameters


def _with_flag(state: State, name: str, choice: bool) -> State | None:
    """The state with a flag; None where it is settled otherwise."""
    if state.flags.get(name, choice) is not choice:
        return None
    return state._replace(flags={**state.flags, name: choice})


def _with_constant(state: State, name: str, source: str) -> Iterator[State]:
    """The state with a constant; nothing where it is settled otherwise."""
    if state.constants.get(name, source) == source:
        yield state._replace(constants={**state.constants, name: source})
