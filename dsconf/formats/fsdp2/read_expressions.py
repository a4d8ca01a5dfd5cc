"""What the expressions of a file stand for, calls of its own functions included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from dsconf.formats.fsdp2.read_folding import (
    LARGEST,
    computed,
    fold,
    item_of,
    merged,
    symbol_of,
    truth,
    unpacked,
)
from dsconf.formats.fsdp2.read_methods import extended, of_dict, of_list
from dsconf.formats.fsdp2.read_scopes import Condition, Frame, Scopes
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
    origin,
    plain,
)

_DEEPEST = 14
"""Calls of functions of the file inside of each other; a deeper one is not followed."""
_MOST = 60_000
"""Expressions that are looked at; what comes after them is not known."""


class Expressions(Scopes):
    """A file whose expressions are followed."""

    def __init__(self, module: cst.Module, skipped: frozenset[str]) -> None:
        """`skipped` are functions that are not followed."""
        super().__init__(module)
        self.skipped = skipped
        self._followed: set[cst.CSTNode] = set()
        self._instances: dict[cst.ClassDef, Instance] = {}
        self._left = _MOST

    @property
    def exhausted(self) -> bool:
        """Whether the file was too long to be followed to its end."""
        return self._left <= 0

    def _suite(self, suite: cst.BaseSuite) -> bool:
        """Follow statements; whether they end before their end, by return or the like."""
        raise NotImplementedError

    # ---- targets ---------------------------------------------------------------------------------

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
        if isinstance(owner, Instance | Class):
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
                number = node.evaluated_value
                return Known(number) if abs(number) < LARGEST else Opaque(self.text(node), node)
            case cst.SimpleString() | cst.ConcatenatedString():
                text = node.evaluated_value
                return Known(text) if isinstance(text, str) else Opaque(self.text(node), node)
            case cst.Attribute(value=base, attr=attr):
                return self._attribute(self.value(base), attr.value, node)
            case cst.Call():
                return self._call(node)
            case cst.BinaryOperation(left=left, operator=sign, right=right):
                first, second = self.value(left), self.value(right)
                return fold(sign, first, second) or Op(symbol_of(sign), first, second, node)
            case cst.UnaryOperation(operator=sign, expression=inner):
                return self._unary(sign, self.value(inner), node)
            case cst.BooleanOperation(left=left, operator=sign, right=right):
                return self._boolean(self.value(left), isinstance(sign, cst.And), right, node)
            case cst.Comparison(
                left=left, comparisons=[cst.ComparisonTarget(operator=sign, comparator=right)]
            ):
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
                self._kept.add(self._frame.scope)
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
        source = item_of(found)
        return source.items if isinstance(source, Seq) else (Spread(source),)

    def _attribute(self, base: Value, name: str, node: cst.CSTNode | None = None) -> Value:
        match base:
            case Ref(name=full):
                return Ref(f"{full}.{name}")
            case Instance(of=of, scope=scope):
                found = self._heap.get((scope, name)) or self._member(of, name)
                if isinstance(found, Function):
                    return Function(found.node, found.scope, base)
                return found or Attr(base, name, node)
            case Class():
                return self._member(base, name) or Attr(base, name, node)
            case Choice(test=test, yes=yes, no=no):
                return merged(test, self._attribute(yes, name, node), self._attribute(no, name, node))
            case Made() if isinstance(moved := origin(base), Instance):
                found = self._heap.get((moved.scope, name))
                return found or Attr(base, name, node)
            case _:
                return Attr(base, name, node)

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
                table = extended(table, found)
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
        self._frames.append(Frame(node, scope, [], self._frame.globals))
        outer, loops = self._conditions, self._loops
        tests: list[Value] = []
        part: cst.CompFor | None = node.for_in
        while part is not None:
            source = item_of(self.value(part.iter))
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
        self._leave(scope)
        if isinstance(found, Item):
            return Seq((Item(found.of, (*found.tests, *tests)),))
        return Seq((Spread(Seq((found,))),)) if not isinstance(found, Spread) else Seq((found,))

    # ---- calls ---------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Value:
        base = None
        if isinstance(node.func, cst.Attribute):
            base = self.value(node.func.value)
            function = self._attribute(base, node.func.attr.value, node.func)
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
                table = extended(table, found)
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
        """What a method of a dict or list gives, which may change it; None for any other method."""
        assert isinstance(func, cst.Attribute)
        tests = tuple(condition.test for condition in self._conditions if condition.holds)
        done = (
            of_list(base, func.attr.value, args, tests)
            if isinstance(base, Seq)
            else of_dict(base, func.attr.value, args, table)
        )
        if done is None:
            return None
        if done.changed is not base:
            self._assign(func.value, done.changed)
        return self._unread(node) if done.result is ABSENT else done.result

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
                return self._called(
                    inner, [*first, *args], {**given, **keywords}, node, more or function.open
                )
            case Choice(test=test, yes=yes, no=no):
                return merged(
                    test,
                    self._called(yes, args, keywords, node, more),
                    self._called(no, args, keywords, node, more),
                )
            case Ref(name="dict"):
                table = Table(dict(keywords), more)
                return extended(extended(Table({}), args[0]), table) if args else table
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
        self._kept.add(instance.scope)
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
        frame = Frame(function.node, scope, [], set())
        bound = self._bound(function.node.params, given, keywords, more)
        self._heap.update({(scope, name): value for name, value in bound.items()})
        self._frames.append(frame)
        if isinstance(function.node, cst.Lambda):
            frame.returned.append(self.value(function.node.body))
        elif not self._suite(function.node.body):
            frame.returned.append(Known(None))
        self._leave(scope)
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


def _fields(node: cst.ClassDef) -> list[str]:
    """The annotated names of a class, in order."""
    return [
        small.target.value
        for line in node.body.body
        if isinstance(line, cst.SimpleStatementLine)
        for small in line.body
        if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name)
    ]
