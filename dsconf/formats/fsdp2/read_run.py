"""Follows a Python file without running it: what it calls, with which values, and under which conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import libcst as cst

from dsconf.formats.fsdp2.read_folding import (
    computed,
    fold,
    item_of,
    merged,
    symbol_of,
    truth,
    unpacked,
)
from dsconf.formats.fsdp2.read_values import (
    ABSENT,
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
    choices,
    plain,
)

_DEEPEST = 14
"""Calls of functions of the file inside of each other; a deeper one is not followed."""
_MOST = 150_000
"""Expressions that are looked at; what comes after them is not known."""
_UNROLLED = 16

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
class _Frame:
    """A call of a function of the file."""

    node: cst.CSTNode
    scope: int
    returned: list[Value]
    globals: set[str]


class Run:
    """A file, followed from its first line, then through the functions that nobody calls."""

    def __init__(self, module: cst.Module, skipped: frozenset[str] = frozenset()) -> None:
        """`skipped` are functions that are known, and not followed."""
        self.module = module
        self.skipped = skipped
        self.events: list[Event] = []
        self._heap: Heap = {}
        self._parents: list[int | None] = [None]
        self._frames = [_Frame(module, 0, [], set())]
        self._conditions: tuple[Condition, ...] = ()
        self._contexts: tuple[Value, ...] = ()
        self._loops: tuple[Value, ...] = ()
        self._followed: set[cst.CSTNode] = set()
        self._instances: dict[cst.ClassDef, Instance] = {}
        self._left = _MOST
        self._block(module.body)
        self._entries()

    @property
    def exhausted(self) -> bool:
        """Whether the file was too long to be followed to its end."""
        return self._left <= 0

    def constant(self, name: str) -> Value | None:
        """The value of a name of the module; None where there is none."""
        return self._heap.get((0, name))

    def text(self, node: cst.CSTNode) -> str:
        """An expression as it is written, on one line."""
        return " ".join(self.module.code_for_node(node).split())

    # ---- functions that nobody calls -----------------------------------------------------------------

    def _entries(self) -> None:
        named = _names(self.module)
        self._functions(self.module.body, named, None)
        for node in self._classes(self.module.body):
            of = self._heap.get((0, node.name.value))
            if isinstance(of, Class) and of.node is node and node.name.value not in self.skipped:
                self._methods(of, named)
        # Those that are only handed on, or call themselves.
        self._functions(self.module.body, {}, None)

    def _functions(
        self, body: Sequence[cst.CSTNode], named: Mapping[str, int], owner: Instance | None
    ) -> None:
        for node in body:
            if isinstance(node, cst.FunctionDef):
                name = node.name.value
                if node not in self._followed and name not in self.skipped and not named.get(name):
                    function = Function(node, 0 if owner is None else owner.of.scope, owner)
                    self._follow(function, self._open_arguments(node, owner), {}, node)
            elif isinstance(node, cst.If | cst.Try):
                self._functions(node.body.body, named, owner)

    def _classes(self, body: Sequence[cst.CSTNode]) -> Iterator[cst.ClassDef]:
        for node in body:
            if isinstance(node, cst.ClassDef):
                yield node
            elif isinstance(node, cst.If | cst.Try):
                yield from self._classes(node.body.body)

    def _methods(self, of: Class, named: Mapping[str, int]) -> None:
        """The methods that nobody calls, of the object that the file makes, or of one that is made elsewhere."""
        instance = self._instances.get(of.node)
        if instance is None:
            instance = self._instances[of.node] = Instance(of, self._scope(of.scope))
        self._functions(of.node.body.body, {**named, "__init__": 0}, instance)
        self._functions(of.node.body.body, {}, instance)

    def _open_arguments(self, node: cst.FunctionDef, owner: Instance | None) -> list[Value]:
        params = node.params
        names = [*params.posonly_params, *params.params]
        taken = names[1:] if owner is not None else names
        return [Opaque(param.name.value, param) for param in taken]

    # ---- statements ----------------------------------------------------------------------------------

    def _block(self, body: Sequence[cst.CSTNode]) -> bool:
        """Follow statements; whether they end before their end."""
        for statement in body:
            if isinstance(statement, cst.SimpleStatementLine):
                if any(self._simple(small) for small in statement.body):
                    return True
            elif self._compound(statement):
                return True
        return False

    def _suite(self, suite: cst.BaseSuite) -> bool:
        if isinstance(suite, cst.SimpleStatementSuite):
            return any(self._simple(small) for small in suite.body)
        return self._block(suite.body)

    def _simple(self, node: cst.BaseSmallStatement) -> bool:
        match node:
            case cst.Expr(value=value):
                self.value(value)
            case cst.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self._assign(target.target, found)
            case cst.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self.value(value))
            case cst.AugAssign(target=target, operator=sign, value=value):
                self._augment(node, target, sign, value)
            case cst.Return(value=value):
                self._frame.returned.append(Known(None) if value is None else self.value(value))
                return True
            case cst.Raise() | cst.Break() | cst.Continue():
                return True
            case cst.Import(names=names):
                for alias in names:
                    self._import(alias)
            case cst.ImportFrom():
                self._import_from(node)
            case cst.Global(names=names) | cst.Nonlocal(names=names):
                self._frame.globals.update(item.name.value for item in names)
            case cst.Assert(test=test):
                self.value(test)
            case _:
                pass
        return False

    def _compound(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.If():
                return self._if(node)
            case cst.For(iter=iterated, target=target, body=body, orelse=orelse):
                self._for(self.value(iterated), target, body)
                if orelse is not None:
                    self._suite(orelse.body)
            case cst.While(test=test, body=body):
                self._forget(body)
                condition = self.value(test)
                if truth(condition) is not False:
                    self._in_loop(condition, body)
            case cst.With(items=items, body=body):
                outer = self._contexts
                for item in items:
                    entered = self.value(item.item)
                    self._contexts = (*self._contexts, entered)
                    if item.asname is not None:
                        self._assign(item.asname.name, entered)
                ended = self._suite(body)
                self._contexts = outer
                return ended
            case cst.Try() | cst.TryStar():
                ended = self._suite(node.body)
                if node.orelse is not None:
                    ended = self._suite(node.orelse.body) or ended
                if node.finalbody is not None:
                    ended = self._suite(node.finalbody.body) or ended
                return ended
            case cst.FunctionDef(name=name):
                made: Value = Function(node, self._frame.scope)
                if any(self._is_property(each) for each in node.decorators):
                    made = Opaque(name.value, node)
                self._set(name.value, made)
            case cst.ClassDef():
                self._class(node)
            case cst.Match(subject=subject, cases=cases):
                self.value(subject)
                for case in cases:
                    self._branch(Condition(Opaque(self.text(subject), subject), True), case.body)
            case _:
                pass
        return False

    def _is_property(self, decorator: cst.Decorator) -> bool:
        return isinstance(decorator.decorator, cst.Name) and decorator.decorator.value == "property"

    def _class(self, node: cst.ClassDef) -> None:
        scope = self._scope(self._frame.scope)
        bases = tuple(self.value(base.value) for base in node.bases)
        self._frames.append(_Frame(node, scope, [], set()))
        self._suite(node.body)
        self._frames.pop()
        self._set(node.name.value, Class(node, scope, bases))

    def _if(self, node: cst.If) -> bool:
        test = self.value(node.test)
        holds = truth(test)
        orelse = node.orelse
        if holds is not None:
            taken = node.body if holds else (orelse.body if isinstance(orelse, cst.Else) else None)
            if not holds and isinstance(orelse, cst.If):
                return self._if(orelse)
            return self._suite(taken) if taken is not None else False
        before = dict(self._heap)
        ended = self._branch(Condition(test, True), node.body)
        after, self._heap = self._heap, before
        other = Condition(test, False)
        if isinstance(orelse, cst.If):
            outer, self._conditions = self._conditions, (*self._conditions, other)
            otherwise = self._if(orelse)
            self._conditions = outer
        else:
            otherwise = orelse is not None and self._branch(other, orelse.body)
        if ended and otherwise:
            return True
        if ended:
            return False
        self._heap = after if otherwise else self._joined(test, after, self._heap)
        return False

    def _branch(self, condition: Condition, body: cst.BaseSuite) -> bool:
        outer, self._conditions = self._conditions, (*self._conditions, condition)
        ended = self._suite(body)
        self._conditions = outer
        return ended

    def _joined(self, test: Value, yes: Heap, no: Heap) -> Heap:
        heap = {**no, **yes}
        for key, value in yes.items():
            other = no.get(key, value)
            if other is not value:
                heap[key] = merged(test, value, other)
        return heap

    def _for(self, iterated: Value, target: cst.BaseExpression, body: cst.BaseSuite) -> None:
        source = item_of(iterated) or iterated
        self._forget(body)
        if isinstance(source, Known) and isinstance(source.value, tuple | list):
            source = Seq(tuple(Known(item) for item in source.value))
        if isinstance(source, Seq) and len(source.items) <= _UNROLLED:
            for item in source.items:
                each = Item(item_of(item.of) or item.of) if isinstance(item, Spread) else item
                self._assign(target, each)
                self._in_loop(source, body)
            return
        if isinstance(source, Choice):
            source = next((each for each in choices(source) if not isinstance(each, Known)), source)
        self._assign(target, Item(source))
        self._in_loop(source, body)

    def _in_loop(self, source: Value, body: cst.BaseSuite) -> None:
        outer, self._loops = self._loops, (*self._loops, source)
        self._suite(body)
        self._loops = outer

    def _forget(self, body: cst.BaseSuite) -> None:
        """What a loop counts up has no one value in it."""
        for name in _counted(body):
            key = self._key(name)
            if key in self._heap:
                self._heap[key] = Opaque(name)

    # ---- names ---------------------------------------------------------------------------------------

    @property
    def _frame(self) -> _Frame:
        return self._frames[-1]

    def _scope(self, parent: int | None) -> int:
        self._parents.append(parent)
        return len(self._parents) - 1

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
        return Ref(node.value) if node.value in _BUILTIN else Opaque(node.value, node)

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

    def _assign(self, target: cst.BaseExpression, value: Value) -> None:
        match target:
            case cst.Name(value=name):
                self._set(name, value)
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                for element, part in zip(elements, unpacked(value, len(elements)), strict=True):
                    self._assign(element.value, part)
            case cst.Attribute(value=base, attr=attr):
                self._assign_attribute(self.value(base), attr.value, value, target)
            case cst.Subscript(value=base):
                owner, key = self.value(base), plain(self._index(target))
                if isinstance(owner, Table) and isinstance(key, str | int):
                    self._assign(base, Table({**owner.items, key: value}, owner.open))
            case _:
                pass

    def _assign_attribute(self, owner: Value, name: str, value: Value, node: cst.CSTNode) -> None:
        if isinstance(owner, Instance):
            self._heap[(owner.scope, name)] = value
        elif isinstance(owner, Class):
            self._heap[(owner.scope, name)] = value
        else:
            self._record(Made(Ref("setattr"), (owner, Known(name), value), {}, node))

    def _augment(
        self, node: cst.AugAssign, target: cst.BaseExpression, sign: cst.CSTNode, value: cst.BaseExpression
    ) -> None:
        left, right = self.value(target), self.value(value)
        shared = not isinstance(target, cst.Name) or target.value in self._frame.globals
        found = None if shared else fold(sign, left, right)
        if found is None and not isinstance(left, Known):
            found = Op(symbol_of(sign), left, right, node)
        self._assign(target, found or Opaque(self.text(target), target))

    # ---- expressions ---------------------------------------------------------------------------------

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression stands for."""
        self._left -= 1
        if self._left <= 0:
            return Opaque(self.text(node), node)
        match node:
            case cst.Name():
                return self._name(node)
            case cst.Integer() | cst.Float():
                return Known(node.evaluated_value)
            case cst.SimpleString() | cst.ConcatenatedString():
                text = node.evaluated_value
                return Known(text) if isinstance(text, str) else Opaque(self.text(node), node)
            case cst.Attribute(value=base, attr=attr):
                return self._attribute(self.value(base), attr.value)
            case cst.Call():
                return self._call(node)
            case cst.BinaryOperation(left=left, operator=sign, right=right):
                first, second = self.value(left), self.value(right)
                return fold(sign, first, second) or Op(symbol_of(sign), first, second, node)
            case cst.UnaryOperation(operator=sign, expression=inner):
                return self._unary(sign, self.value(inner), node)
            case cst.BooleanOperation(left=left, operator=sign, right=right):
                return self._boolean(self.value(left), isinstance(sign, cst.And), right, node)
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=sign, comparator=right)]):
                first, second = self.value(left), self.value(right)
                return fold(sign, first, second) or Op(symbol_of(sign), first, second, node)
            case cst.IfExp(test=test, body=body, orelse=orelse):
                tested = self.value(test)
                holds = truth(tested)
                if holds is not None:
                    return self.value(body if holds else orelse)
                return merged(tested, self.value(body), self.value(orelse))
            case cst.Tuple(elements=elements) | cst.List(elements=elements) | cst.Set(elements=elements):
                return Seq(tuple(part for element in elements for part in self._element(element)))
            case cst.Dict():
                return self._dict(node)
            case cst.Subscript(value=base):
                return self._subscript(self.value(base), self._index(node), node)
            case cst.ListComp() | cst.GeneratorExp() | cst.SetComp():
                return self._comprehension(node)
            case cst.Lambda():
                return Function(node, self._frame.scope)
            case cst.NamedExpr(target=target, value=inner):
                found = self.value(inner)
                self._assign(target, found)
                return found
            case cst.Await(expression=inner):
                return self.value(inner)
            case _:
                return Opaque(self.text(node), node)

    def _element(self, element: cst.BaseElement) -> tuple[Value, ...]:
        found = self.value(element.value)
        if not isinstance(element, cst.StarredElement):
            return (found,)
        source = item_of(found) or found
        return source.items if isinstance(source, Seq) else (Spread(source),)

    def _attribute(self, base: Value, name: str) -> Value:
        match base:
            case Ref(name=full):
                return Ref(f"{full}.{name}")
            case Instance(of=of, scope=scope):
                found = self._heap.get((scope, name)) or self._member(of, name)
                if isinstance(found, Function):
                    return Function(found.node, found.scope, base)
                return found or Attr(base, name)
            case Class():
                return self._member(base, name) or Attr(base, name)
            case Choice(test=test, yes=yes, no=no):
                return merged(test, self._attribute(yes, name), self._attribute(no, name))
            case _:
                return Attr(base, name)

    def _member(self, of: Class, name: str) -> Value | None:
        found = self._heap.get((of.scope, name))
        for base in of.bases:
            if found is None and isinstance(base, Class):
                found = self._member(base, name)
        return found

    def _unary(self, sign: cst.CSTNode, inner: Value, node: cst.CSTNode) -> Value:
        constant = plain(inner)
        if isinstance(sign, cst.Not):
            holds = truth(inner)
            return Op("not", inner, inner, node) if holds is None else Known(not holds)
        if isinstance(sign, cst.Minus) and isinstance(constant, int | float):
            return Known(-constant)
        return Opaque(self.text(node), node)

    def _boolean(self, left: Value, is_and: bool, right: cst.BaseExpression, node: cst.CSTNode) -> Value:
        holds = truth(left)
        if holds is not None:
            return self.value(right) if holds is is_and else left
        other = self.value(right)
        if is_and:
            return other if truth(other) is False else Op("and", left, other, node)
        return Choice(left, left, other) if truth(other) is not True or plain(other) is not True else other

    def _dict(self, node: cst.Dict) -> Value:
        table = Table({})
        for element in node.elements:
            found = self.value(element.value)
            if isinstance(element, cst.DictElement):
                key = plain(self.value(element.key))
                if isinstance(key, str | int | float | bool | None):
                    table = Table({**table.items, key: found}, table.open)
                else:
                    table = Table(table.items, self._unread(element.key))
            else:
                table = _extended(table, found)
        return table

    def _unread(self, node: cst.CSTNode) -> Value:
        return Opaque(self.text(node), node)

    def _index(self, node: cst.Subscript) -> Value:
        parts = [each.slice for each in node.slice]
        values = [
            self.value(part.value) if isinstance(part, cst.Index) else self._unread(part) for part in parts
        ]
        return values[0] if len(values) == 1 else Seq(tuple(values))

    def _subscript(self, base: Value, index: Value, node: cst.CSTNode) -> Value:
        key = plain(index)
        match base:
            case Table(items=items) if key is not UNKNOWN and not isinstance(key, tuple | dict):
                if key in items and items[key] is not ABSENT:
                    return items[key]
            case Seq(items=items) if isinstance(key, int) and -len(items) <= key < len(items):
                if not any(isinstance(item, Spread | Item) for item in items):
                    return items[key]
            case Table() | Seq():
                pass
            case _:
                return Op("[]", base, index, node)
        return self._unread(node)

    def _comprehension(self, node: cst.ListComp | cst.GeneratorExp | cst.SetComp) -> Value:
        scope = self._scope(self._frame.scope)
        self._frames.append(_Frame(node, scope, [], self._frame.globals))
        outer, loops = self._conditions, self._loops
        tests: list[Value] = []
        part: cst.CompFor | None = node.for_in
        while part is not None:
            source = self.value(part.iter)
            source = item_of(source) or source
            one = source.items[0] if isinstance(source, Seq) and len(source.items) == 1 else Item(source)
            self._assign(part.target, one)
            self._loops = (*self._loops, source)
            for each in part.ifs:
                test = self.value(each.test)
                tests.append(test)
                self._conditions = (*self._conditions, Condition(test, True))
            part = part.inner_for_in
        found = self.value(node.elt)
        self._conditions, self._loops = outer, loops
        self._frames.pop()
        if isinstance(found, Item):
            return Seq((Item(found.of, (*found.tests, *tests)),))
        return Seq((Spread(Seq((found,))),)) if not isinstance(found, Spread) else Seq((found,))

    # ---- calls ---------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Value:
        base = None
        if isinstance(node.func, cst.Attribute):
            base = self.value(node.func.value)
            function = self._attribute(base, node.func.attr.value)
        else:
            function = self.value(node.func)
        args: list[Value] = []
        table = Table({})
        more: Value | None = None
        for arg in node.args:
            found = self.value(arg.value)
            if arg.star == "*":
                if isinstance(found, Seq):
                    args += found.items
                else:
                    more = found
            elif arg.star == "**":
                table = _extended(table, found)
            elif arg.keyword is not None:
                table = Table({**table.items, arg.keyword.value: found}, table.open)
            else:
                args.append(found)
        if base is not None and isinstance(base, Table | Seq):
            changed = self._changed(base, node.func, args, table, node)
            if changed is not None:
                return changed
        keywords = {str(key): item for key, item in table.items.items()}
        return self._called(function, args, keywords, node, more or table.open)

    def _changed(
        self, base: Table | Seq, func: cst.BaseExpression, args: list[Value], table: Table, node: cst.Call
    ) -> Value | None:
        """What a method of a dict or list does."""
        assert isinstance(func, cst.Attribute)
        name = func.attr.value
        if isinstance(base, Seq):
            if name in ("append", "add") and len(args) == 1:
                found = args[0]
                if isinstance(found, Item):
                    tests = tuple(condition.test for condition in self._conditions if condition.holds)
                    found = Item(found.of, (*found.tests, *tests))
                self._assign(func.value, Seq((*base.items, found)))
                return Known(None)
            return None
        if name == "update":
            for each in [*args, table]:
                base = _extended(base, each)
            self._assign(func.value, base)
            return Known(None)
        if name == "copy":
            return base
        if name == "get" and args:
            key = plain(args[0])
            if isinstance(key, str | int) and base.open is None:
                found = base.items.get(key, args[1] if len(args) > 1 else Known(None))
                return self._unread(node) if found is ABSENT else found
        if name == "setdefault" and len(args) == 2:
            key = plain(args[0])
            if isinstance(key, str | int) and key not in base.items:
                self._assign(func.value, Table({**base.items, key: args[1]}, base.open))
                return args[1]
        if name == "pop" and args:
            key = plain(args[0])
            self._assign(func.value, Table({k: v for k, v in base.items.items() if k != key}, base.open))
            return base.items.get(key) or self._unread(node) if isinstance(key, str | int) else None
        return None

    def _called(
        self,
        function: Value,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: cst.CSTNode,
        more: Value | None = None,
    ) -> Value:
        match function:
            case Function() if self._may_follow(function):
                return self._follow(function, args, keywords, node, more)
            case Class():
                return self._instance(function, args, keywords, node, more)
            case Made(function=Ref(name="functools.partial"), args=(inner, *first), keywords=given):
                return self._called(inner, [*first, *args], {**given, **keywords}, node, more or function.open)
            case Choice(test=test, yes=yes, no=no):
                return merged(
                    test,
                    self._called(yes, args, keywords, node, more),
                    self._called(no, args, keywords, node, more),
                )
            case Ref(name="dict"):
                table = Table(dict(keywords), more)
                return _extended(_extended(Table({}), args[0]), table) if args else table
            case Ref(name="list" | "tuple") if args and isinstance(args[0], Seq):
                return args[0]
            case Ref(name="list" | "set" | "tuple") if not args:
                return Seq(())
            case Ref(name="getattr") if len(args) >= 2 and isinstance(plain(args[1]), str):
                return self._attribute(args[0], plain(args[1]))
            case Ref(name="setattr") if len(args) == 3 and isinstance(plain(args[1]), str):
                self._assign_attribute(args[0], plain(args[1]), args[2], node)
                return Known(None)
            case Ref(name="len") if args and isinstance(plain(args[0]), tuple | str):
                return Known(len(plain(args[0])))
            case Ref(name="torch.device"):
                return Made(function, tuple(args), keywords, node)
            case Ref(name=name) if not keywords and (found := computed(name, args)) is not None:
                return found
            case _:
                return self._record(Made(function, tuple(args), keywords, node, more))

    def _record(self, made: Made) -> Made:
        self.events.append(Event(made, self._conditions, self._contexts, self._loops))
        return made

    def _may_follow(self, function: Function) -> bool:
        node = function.node
        if isinstance(node, cst.FunctionDef) and node.name.value in self.skipped:
            return False
        deep = len(self._frames) > _DEEPEST or any(frame.node is node for frame in self._frames)
        return not deep and self._left > 0

    def _instance(
        self,
        of: Class,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: cst.CSTNode,
        more: Value | None,
    ) -> Value:
        made = Made(of, tuple(args), keywords, node, more)
        instance = Instance(of, self._scope(of.scope), made)
        self._instances[of.node] = instance
        start = self._member(of, "__init__")
        if isinstance(start, Function):
            method = Function(start.node, start.scope, instance)
            if self._may_follow(method):
                self._follow(method, args, keywords, node, more)
        else:
            fields = _fields(of.node)
            given = {**dict(zip(fields, args, strict=False)), **keywords}
            self._heap.update({(instance.scope, name): value for name, value in given.items()})
        return instance

    def _follow(
        self,
        function: Function,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: cst.CSTNode,
        more: Value | None = None,
    ) -> Value:
        scope = self._scope(function.scope)
        self._followed.add(function.node)
        given = [*([function.owner] if function.owner is not None else []), *args]
        frame = _Frame(function.node, scope, [], set())
        bound = self._bound(function.node.params, given, keywords, more)
        self._heap.update({(scope, name): value for name, value in bound.items()})
        self._frames.append(frame)
        if isinstance(function.node, cst.Lambda):
            frame.returned.append(self.value(function.node.body))
        elif not self._suite(function.node.body):
            frame.returned.append(Known(None))
        self._frames.pop()
        found = frame.returned or [Known(None)]
        result = found[-1]
        for other in found[-2::-1]:
            result = merged(Opaque(self.text(node), node), other, result)
        return result

    def _bound(
        self,
        params: cst.Parameters,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        more: Value | None,
    ) -> dict[str, Value]:
        names = [*params.posonly_params, *params.params]
        found: dict[str, Value] = {}
        left = dict(keywords)
        for place, param in enumerate([*names, *params.kwonly_params]):
            name = param.name.value
            if place < len(names) and place < len(args):
                found[name] = args[place]
            elif name in left:
                found[name] = left.pop(name)
            elif param.default is not None and more is None:
                found[name] = self.value(param.default)
            else:
                found[name] = Opaque(name, param)
            if found[name] is ABSENT and param.default is not None:
                found[name] = self.value(param.default)
        if isinstance(params.star_arg, cst.Param):
            found[params.star_arg.name.value] = Seq(tuple(args[len(names) :]))
        if params.star_kwarg is not None:
            found[params.star_kwarg.name.value] = Table(left, more)
        return found


def _extended(table: Table, more: Value) -> Table:
    """A dict with the items of another one."""
    match more:
        case Table(items=items, open=open_):
            return Table({**table.items, **items}, table.open or open_)
        case Choice(test=test, yes=yes, no=no):
            found = merged(test, _extended(table, yes), _extended(table, no))
            return found if isinstance(found, Table) else Table(table.items, more)
        case Known(value=None):
            return table
        case Seq(items=()):
            return table
        case _:
            return Table(table.items, more)


def _fields(node: cst.ClassDef) -> list[str]:
    """The annotated names of a class, in order."""
    return [
        small.target.value
        for line in node.body.body
        if isinstance(line, cst.SimpleStatementLine)
        for small in line.body
        if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name)
    ]


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        # The name of a definition is no use of it.
        self.found[node.name.value] = self.found.get(node.name.value, 0) - 1

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.found[node.name.value] = self.found.get(node.name.value, 0) - 1

    def visit_Name(self, node: cst.Name) -> None:
        self.found[node.value] = self.found.get(node.value, 0) + 1


def _names(module: cst.Module) -> dict[str, int]:
    """How often each name is used."""
    visitor = _Names()
    module.visit(visitor)
    return visitor.found


class _Counted(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Name):
            self.found.add(node.target.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            if isinstance(target.target, cst.Name):
                self.found.add(target.target.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False


def _counted(body: cst.BaseSuite) -> set[str]:
    """The names that a block sets anew."""
    visitor = _Counted()
    body.visit(visitor)
    return visitor.found


_BUILTIN: frozenset[str] = frozenset(
    "abs all any bool dict enumerate filter float getattr hasattr id int isinstance issubclass iter len list map max "
    "min next open print range reversed round set setattr sorted str sum super tuple type vars zip".split()
)


def shown(run: Run, value: Value) -> Any:
    """A value as a report shows it: the constant, or what is written."""
    constant = plain(value)
    if constant is not UNKNOWN:
        return list(constant) if isinstance(constant, tuple) else constant
    match value:
        case Ref(name=name):
            return name
        case Made(node=node) | Op(node=node):
            return run.text(node)
        case Opaque(text=text):
            return text
        case Attr(base=base, name=name):
            return f"{shown(run, base)}.{name}"
        case Choice(test=test, yes=yes, no=no):
            return f"{shown(run, yes)} if {shown(run, test)} else {shown(run, no)}"
        case Item(of=of):
            return f"an item of {shown(run, of)}"
        case Class(node=node):
            return node.name.value
        case Function(node=node):
            return node.name.value if isinstance(node, cst.FunctionDef) else "lambda"
        case Instance(of=of):
            return of.node.name.value
        case Seq(items=items):
            return [shown(run, item) for item in items]
        case Table(items=items):
            return {str(key): shown(run, item) for key, item in items.items()}
        case Spread(of=of):
            return f"*{shown(run, of)}"
        case _:
            return "?"
