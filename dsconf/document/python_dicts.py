"""Dict literals of a Python file as trees with positions. No code is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dsconf.document.node import Entry, Node, Span, line_starts

_MUTATORS = frozenset({"update", "setdefault", "pop", "popitem", "clear"})


class NotPython(Exception):
    """Text that does not parse as Python 3; the message says where."""


def dict_literals(text: str) -> list[Node]:
    """Every outermost dict literal, in the order of the text.

    A value that is no literal is of the kind "unknown". An object is `open` where code may add keys to it: it
    unpacks another dict, has a computed key, or is not known to stay as it is written. Raises NotPython.
    """
    tree = parse_python(text)
    places = Places(text)
    closed = _closed(tree)
    found = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Dict):
            found.append(_object(node, places, open_=node not in closed))
            # What stands in it belongs to it; a lambda's or a call's own dicts are not configs of their own.
            continue
        stack.extend(ast.iter_child_nodes(node))
    return sorted(found, key=lambda node: node.span)


def parse_python(text: str) -> ast.Module:
    """The tree of a Python file. Raises NotPython."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f" (line {line})" if line else ""
        raise NotPython(f"it does not parse as Python 3{place}") from None


def plain_node(value: ast.expr, places: Places) -> Node:
    """The value of a keyword: what nothing else can change, since it has no name."""
    return _value(value, places, open_=False)


def _closed(tree: ast.AST) -> set[ast.AST]:
    """The dict literals that nothing changes: arguments of calls, and values of names that the file leaves alone."""
    assigned: dict[str, list[ast.AST]] = {}
    changed: set[str] = set()
    closed: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as value):
                assigned.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as value):
                assigned.setdefault(name, []).append(value)
            case ast.Call(func=ast.Attribute(attr=attribute, value=owner)) if attribute in _MUTATORS:
                changed |= _root(owner)
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                changed |= _root(owner)
            case ast.AugAssign(target=target):
                changed |= _root(target)
            case ast.keyword(value=ast.Dict() as value):
                closed.add(value)
        if isinstance(node, ast.Call):
            closed.update(argument for argument in node.args if isinstance(argument, ast.Dict))
            # A function that is given the dict by name may change it, but for those that read configs.
            if not _reads_configs(node.func):
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    changed |= {argument.id} if isinstance(argument, ast.Name) else set()
    for name, values in assigned.items():
        if len(values) == 1 and name not in changed:
            closed.update(values)
    return closed


def _root(node: ast.AST) -> set[str]:
    """The name that a chain of subscripts and attributes begins with."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _reads_configs(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in (
        "initialize", "init", "Init", "TrainingArguments", "Seq2SeqTrainingArguments", "DeepSpeedPlugin",
        "HfDeepSpeedConfig", "DeepSpeedConfig", "DeepSpeedStrategy", "dump", "dumps", "print",
    )  # fmt: skip


class Places:
    """From the lines and UTF-8 columns of `ast` to offsets in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = line_starts(text)

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column of `ast`."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        content = self._text[start:end]
        if content.isascii():
            return start + column
        return start + len(content.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr) -> Span:
        """The place of an expression."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Span(
            self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)
        )


def _object(node: ast.Dict, places: Places, *, open_: bool) -> Node:
    found = Node("object", 0)
    found.span = places.span(node)
    found.open = open_
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.entries.append(Entry(key.value, places.span(key), _value(value, places, open_=open_)))
        else:
            found.open = True
    return found


def _value(node: ast.expr, places: Places, *, open_: bool) -> Node:
    if isinstance(node, ast.Dict):
        return _object(node, places, open_=open_)
    found = Node("unknown", 0)
    if isinstance(node, ast.List | ast.Tuple):
        found = Node("array", 0)
        found.elements = [_value(element, places, open_=open_) for element in node.elts]
    else:
        for scalar in _constant(node):
            kind = {bool: "boolean", str: "string", type(None): "null"}.get(type(scalar), "number")
            found = Node(kind, 0, scalar)  # type: ignore[arg-type]
    found.span = places.span(node)
    return found


def _constant(node: ast.expr) -> Iterator[object]:
    """The value of a literal that JSON can hold, nothing for any other expression."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            yield value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            yield -value
