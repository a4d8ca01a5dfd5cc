"""Assembles a module from the functions in `parts/` (see there for how parts are written)."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

import libcst as cst

_PARTS = Path(__file__).parent / "parts"
_FUTURE = "__future__"
_OWN = "dsconf."
"""Where parts take each other's definitions from, which the module has itself."""
_STANDARD = ("math", "re", "collections", "pathlib", "typing")

_NONE = cst.MaybeSentinel.DEFAULT
_WIDEST_CALL = 100

Definition = cst.FunctionDef | cst.ClassDef | cst.SimpleStatementLine
"""What a part defines: a function, a class, or a variable."""


class Constant(NamedTuple):
    """The value of a constant as Python source, and the comment that says where it comes from, "" for none."""

    source: str
    comment: str
    kept: bool = False
    """Whether it stands in the module although no function uses it."""


class Alias(NamedTuple):
    """A constant that has the value of another one, or of an attribute, by name."""

    of: str


class Omitted(NamedTuple):
    """A constant that has no value: the keyword arguments that would take it are left out."""


class Needed(NamedTuple):
    """A constant that the user has to give: it becomes a keyword-only parameter of this type."""

    annotation: str


def emit(
    docstring: str,
    functions: Sequence[tuple[str, Sequence[str]]],
    flags: Mapping[str, bool],
    constants: Mapping[str, Constant | Needed | Alias | Omitted],
) -> str:
    """The source of a module.

    `functions` are the names to take, by part; `flags` and `constants` are the values of the parts' constants. Raises
    KeyError for a name that the part does not define.
    """
    fold = _Fold(
        flags,
        {name: constant.of for name, constant in constants.items() if isinstance(constant, Alias)},
        {name for name, constant in constants.items() if isinstance(constant, Omitted)},
    )
    imports: list[cst.Import | cst.ImportFrom] = []
    body: list[Definition] = []
    for part, names in functions:
        tree = _parsed(part)
        nodes = {_defined(node): node for node in tree.body if isinstance(node, Definition)}
        defined = {fold.aliases.get(name, name): node for name, node in nodes.items()}
        body += [cast(Definition, defined[name].visit(fold)) for name in names]
        imports += [
            line
            for statement in tree.body
            if isinstance(statement, cst.SimpleStatementLine)
            for line in statement.body
            if isinstance(line, cst.Import | cst.ImportFrom)
        ]
    body = _with_parameters(
        body, {name: c.annotation for name, c in constants.items() if isinstance(c, Needed)}
    )
    used = set().union(*(_names(node) for node in body))
    lines = [
        f"{name} = {constant.source}" + (f"  # {constant.comment}" if constant.comment else "")
        for name, constant in constants.items()
        if isinstance(constant, Constant) and (constant.kept or name in used)
    ]
    for line in lines:
        used |= _names(cst.parse_module(line))
    blocks = [f'"""{docstring}"""', _import_lines(imports, used)]
    if lines:
        blocks.append("\n".join(lines))
    code = [cst.Module(body=[node.with_changes(leading_lines=[])]).code.strip("\n") for node in body]
    return "\n\n".join(blocks) + "\n\n\n" + "\n\n\n".join(code) + "\n"


@cache
def _parsed(part: str) -> cst.Module:
    return cst.parse_module((_PARTS / f"{part}.py").read_text(encoding="utf-8"))


class _Fold(cst.CSTTransformer):
    """Replaces `if FLAG: ... else: ...` by the branch that the flag takes, and a constant by what it is an alias of.

    An argument `name=value if FLAG else default` becomes `name=value`, or is left out, as keyword arguments are that
    would take an omitted constant. `for item in some if FLAG else others` loops over one of them.
    """

    def __init__(
        self, flags: Mapping[str, bool], aliases: Mapping[str, str], omitted: Collection[str]
    ) -> None:
        super().__init__()
        self.flags = flags
        self.aliases = aliases
        self.omitted = omitted

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        args = [arg for arg in updated_node.args if arg.keyword is None or not self._is_omitted(arg.value)]
        if len(args) == len(updated_node.args):
            return updated_node
        between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        one_line = updated_node.with_changes(
            whitespace_before_args=cst.SimpleWhitespace(""),
            args=[
                *(arg.with_changes(comma=between) for arg in args[:-1]),
                args[-1].with_changes(comma=_NONE),
            ],
        )
        if len(cst.Module([]).code_for_node(one_line)) <= _WIDEST_CALL:
            return one_line
        last = args[-1].with_changes(comma=updated_node.args[-1].comma)
        return updated_node.with_changes(args=[*args[:-1], last])

    def _is_omitted(self, value: cst.BaseExpression) -> bool:
        return isinstance(value, cst.Name) and value.value in self.omitted

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        alias = self.aliases.get(updated_node.value)
        return updated_node if alias is None else cst.parse_expression(alias)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg | cst.RemovalSentinel:
        value = updated_node.value
        if not isinstance(value, cst.IfExp) or not isinstance(value.test, cst.Name):
            return updated_node
        if value.test.value not in self.flags:
            return updated_node
        return (
            updated_node.with_changes(value=value.body)
            if self.flags[value.test.value]
            else cst.RemoveFromParent()
        )

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        items = updated_node.iter
        while (
            isinstance(items, cst.IfExp)
            and isinstance(items.test, cst.Name)
            and items.test.value in self.flags
        ):
            items = items.body if self.flags[items.test.value] else items.orelse
        return updated_node if items is updated_node.iter else updated_node.with_changes(iter=_bare(items))

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        test = updated_node.test
        if not isinstance(test, cst.Name) or test.value not in self.flags:
            return updated_node
        if self.flags[test.value]:
            branch: cst.BaseSuite = updated_node.body
        elif isinstance(updated_node.orelse, cst.Else):
            branch = updated_node.orelse.body
        elif isinstance(updated_node.orelse, cst.If):
            return updated_node.orelse
        else:
            return cst.RemoveFromParent()
        first, *others = cst.ensure_type(branch, cst.IndentedBlock).body
        if not isinstance(first, cst.SimpleStatementLine | cst.FunctionDef | cst.If | cst.For):
            raise TypeError(f"a branch begins with {type(first).__name__}")
        above = [*updated_node.leading_lines, *first.leading_lines]
        blank = [line.comment is None for line in above]
        kept = [line for i, line in enumerate(above) if not (blank[i] and i > 0 and blank[i - 1])]
        return cst.FlattenSentinel([first.with_changes(leading_lines=kept), *others])


def _bare(items: cst.BaseExpression) -> cst.BaseExpression:
    """An expression without the parentheses of what it was chosen from."""
    return items.with_changes(lpar=[], rpar=[])


def _defined(node: Definition) -> str:
    """The name that a statement defines; "" where it defines none."""
    if not isinstance(node, cst.SimpleStatementLine):
        return node.name.value
    statement = node.body[0]
    target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
    return target.value if isinstance(target, cst.Name) else ""


def _names(node: cst.CSTNode) -> set[str]:
    """Every name in a piece of code that stands for itself (attributes after a dot don't)."""
    tree = ast.parse(cst.Module([]).code_for_node(node).strip())
    return {found.id for found in ast.walk(tree) if isinstance(found, ast.Name)}


def _with_parameters(body: list[Definition], needed: Mapping[str, str]) -> list[Definition]:
    """Turn needed constants into keyword-only parameters, handed down through calls between the functions."""
    uses = {_defined(node): _names(node) & set(needed) for node in body}
    calls = {_defined(node): (_names(node) & set(uses)) - {_defined(node)} for node in body}
    changed = True
    while changed:
        changed = False
        for name, called in calls.items():
            wanted = uses[name].union(*(uses[other] for other in called))
            changed |= wanted != uses[name]
            uses[name] = wanted
    order = list(needed)
    sorted_uses = {name: sorted(wanted, key=order.index) for name, wanted in uses.items()}
    return [
        cst.ensure_type(node.visit(_Parameters(_defined(node), sorted_uses, needed)), type(node))
        if uses[_defined(node)]
        else node
        for node in body
    ]


class _Parameters(cst.CSTTransformer):
    def __init__(self, function: str, uses: Mapping[str, list[str]], needed: Mapping[str, str]) -> None:
        super().__init__()
        self.function = function
        self.uses = uses
        self.needed = needed

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if updated_node.value in self.uses[self.function]:
            return updated_node.with_changes(value=updated_node.value.lower())
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        called = updated_node.func.value if isinstance(updated_node.func, cst.Name) else ""
        extra = [
            cst.Arg(
                keyword=cst.Name(name.lower()),
                value=cst.Name(name.lower()),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            )
            for name in self.uses.get(called, ())
        ]
        return updated_node.with_changes(args=[*updated_node.args, *extra]) if extra else updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if original_node.name.value != self.function or not self.uses[self.function]:
            return updated_node
        params = updated_node.params
        extra = [
            cst.Param(cst.Name(name.lower()), cst.Annotation(cst.parse_expression(self.needed[name])))
            for name in self.uses[self.function]
        ]
        wider = updated_node.with_changes(params=params.with_changes(kwonly_params=extra))
        broken = any(isinstance(param.comma, cst.Comma) for param in params.params[-1:])
        return _one_a_line(wider) if broken or _width(wider) > _WIDEST else wider


_WIDEST = 110


def _width(function: cst.FunctionDef) -> int:
    """The length of a signature on one line."""
    return len(cst.Module([]).code_for_node(function).split(":\n", 1)[0])


def _one_a_line(function: cst.FunctionDef) -> cst.FunctionDef:
    """A function whose signature has one parameter a line, each with a comma."""

    def line(indent: bool) -> cst.ParenthesizedWhitespace:
        return cst.ParenthesizedWhitespace(
            indent=True, last_line=cst.SimpleWhitespace("    " if indent else "")
        )

    between, last = cst.Comma(whitespace_after=line(True)), cst.Comma(whitespace_after=line(False))
    params = function.params
    return function.with_changes(
        whitespace_before_params=line(True),
        params=params.with_changes(
            params=[param.with_changes(comma=between) for param in params.params],
            star_arg=cst.ParamStar(comma=between),
            kwonly_params=[
                param.with_changes(comma=last if param is params.kwonly_params[-1] else between)
                for param in params.kwonly_params
            ],
        ),
    )


def _import_lines(imports: Sequence[cst.Import | cst.ImportFrom], used: set[str]) -> str:
    """The imports that are used, merged and in the usual order: standard library first, `import` before `from`."""
    plain: set[tuple[str, str]] = set()
    members: dict[str, set[str]] = {}
    for line in imports:
        if isinstance(line, cst.Import):
            for alias in line.names:
                module, name = _dotted(alias.name), alias.evaluated_alias
                if (name or module.split(".")[0]) in used:
                    plain.add((module, name or ""))
        elif line.module is not None and not isinstance(line.names, cst.ImportStar):
            module = _dotted(line.module)
            if module.startswith(_OWN):
                continue
            names = {alias.evaluated_name for alias in line.names}
            members.setdefault(module, set()).update(names & used if module != _FUTURE else names)
    groups: list[list[str]] = [[f"from {_FUTURE} import annotations"], [], []]
    for module, name in sorted(plain):
        groups[_group(module)].append(f"import {module} as {name}" if name else f"import {module}")
    for module in sorted(members):
        if module != _FUTURE and members[module]:
            groups[_group(module)].append(_from_line(module, members[module]))
    return "\n\n".join("\n".join(group) for group in groups if group)


def _group(module: str) -> int:
    return 1 if module.split(".")[0] in _STANDARD else 2


def _from_line(module: str, names: set[str]) -> str:
    # The order of ruff's isort: constants, then classes, then functions.
    ordered = sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name.lower()))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= 88:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])


def _dotted(node: cst.BaseExpression) -> str:
    return node.value if isinstance(node, cst.Name) else str(cst.Module([]).code_for_node(node))
