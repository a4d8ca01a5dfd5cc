"""Follows a Python file without running it: what it calls, with which values, and under which conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import libcst as cst

from dsconf.formats.fsdp2.read_expressions import Expressions
from dsconf.formats.fsdp2.read_folding import item_of, merged, truth
from dsconf.formats.fsdp2.read_scopes import Condition, Frame, Heap
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Choice,
    Class,
    Function,
    Instance,
    Item,
    Known,
    Op,
    Opaque,
    Seq,
    Spread,
    Value,
    choices,
    plain,
)

_UNROLLED = 16
"""The longest list whose items a loop takes one by one."""


class Run(Expressions):
    """A file, followed from its first line, then through the functions that nobody calls."""

    def __init__(self, module: cst.Module, used: Collection[str], skipped: frozenset[str]) -> None:
        """`used` are the names that the file uses anywhere; `skipped` functions are known, and not followed."""
        super().__init__(module, skipped)
        self.used = used
        self._block(module.body)
        self._entries()

    # ---- functions that nobody calls -----------------------------------------------------------------

    def _entries(self) -> None:
        self._functions(self.module.body, self.used, None)
        for node in self._classes(self.module.body):
            of = self._heap.get((0, node.name.value))
            if isinstance(of, Class) and of.node is node and node.name.value not in self.skipped:
                self._methods(of)
        # Those that are only handed on, or call themselves.
        self._functions(self.module.body, (), None)

    def _functions(self, body: Sequence[cst.CSTNode], used: Collection[str], owner: Instance | None) -> None:
        for node in body:
            if isinstance(node, cst.FunctionDef):
                name = node.name.value
                if node not in self._followed and name not in self.skipped and name not in used:
                    function = Function(node, 0 if owner is None else owner.of.scope, owner)
                    self._follow(function, self._open_arguments(node, owner), {}, node)
            elif isinstance(node, cst.If | cst.Try):
                self._functions(node.body.body, used, owner)

    def _classes(self, body: Sequence[cst.CSTNode]) -> Iterator[cst.ClassDef]:
        for node in body:
            if isinstance(node, cst.ClassDef):
                yield node
            elif isinstance(node, cst.If | cst.Try):
                yield from self._classes(node.body.body)

    def _methods(self, of: Class) -> None:
        """The methods that nobody calls, of the object that the file makes, or of one that is made elsewhere."""
        instance = self._instances.get(of.node)
        if instance is None:
            instance = self._instances[of.node] = Instance(of, self._scope(of.scope))
            self._kept.add(instance.scope)
        self._functions(of.node.body.body, set(self.used) - {"__init__"}, instance)
        self._functions(of.node.body.body, (), instance)

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
                self._kept.add(self._frame.scope)
                made: Value = Function(node, self._frame.scope)
                if any(self._is_property(each) for each in node.decorators):
                    made = Opaque(name.value, node)
                self._set(name.value, made)
            case cst.ClassDef():
                self._class(node)
            case cst.Match(subject=subject, cases=cases):
                return self._match(self.value(subject), list(cases))
            case _:
                pass
        return False

    def _is_property(self, decorator: cst.Decorator) -> bool:
        return isinstance(decorator.decorator, cst.Name) and decorator.decorator.value == "property"

    def _class(self, node: cst.ClassDef) -> None:
        scope = self._scope(self._frame.scope)
        self._kept |= {scope, self._frame.scope}
        bases = tuple(self.value(base.value) for base in node.bases)
        self._frames.append(Frame(node, scope, [], set()))
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

    def _match(self, subject: Value, cases: list[cst.MatchCase]) -> bool:
        if not cases:
            return False
        first, *others = cases
        asked, constant = self._asked(first), plain(subject)
        if constant is not UNKNOWN and asked is not UNKNOWN and first.guard is None:
            return self._suite(first.body) if constant == asked else self._match(subject, others)
        everything = isinstance(first.pattern, cst.MatchAs) and first.pattern.pattern is None
        if everything and first.guard is None:
            return self._suite(first.body)
        test = Op("==", subject, Known(None if asked is UNKNOWN else asked), first)
        before = dict(self._heap)
        ended = self._branch(Condition(test, True), first.body)
        after, self._heap = self._heap, before
        otherwise = self._match(subject, others)
        if ended or otherwise:
            self._heap = after if otherwise else self._heap
            return ended and otherwise
        self._heap = self._joined(test, after, self._heap)
        return False

    def _asked(self, case: cst.MatchCase) -> object:
        """The constant that a case asks for; UNKNOWN for any other pattern."""
        match case.pattern:
            case cst.MatchValue(value=value) | cst.MatchSingleton(value=value):
                return plain(self.value(value))
            case _:
                return UNKNOWN

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
        source = item_of(iterated)
        self._forget(body)
        if isinstance(source, Known) and isinstance(source.value, tuple | list):
            source = Seq(tuple(Known(item) for item in source.value))
        if isinstance(source, Seq) and len(source.items) <= _UNROLLED:
            for item in source.items:
                each = Item(item_of(item.of)) if isinstance(item, Spread) else item
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
