"""Rule files (Markdown with a TOML block) compiled to an index that needs neither `ast` nor `tomllib` to be used.

Conditions and messages are a small subset of Python expressions:
dotted paths (the effective value of a key), `fact.name`, `context.name`, `key.name` (in schema rules), literals,
lists, objects (`{'device': 'cpu'}`), and / or / not, comparisons, in, + - * / // %, and the predicates of `PREDICATES`.
They become nested lists, which `dsconf.lint.evaluate` interprets.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Code = list[Any]
"""A compiled expression: a list of an operator's name and its operands."""

PREDICATES = {
    "present": 1, "auto": 1, "spelt": 1, "since": 1, "optimizer_known": 1, "nearest_optimizer": 1, "scheduler_known": 1,
    "nearest_scheduler": 1,
}  # fmt: skip
"""The callable names and how many arguments they take; `present`, `auto` and `spelt` (how the file writes the name of
a key) take a path, `since` a DeepSpeed version in quotes: whether the target is that one or newer."""
_PATH_PREDICATES = {"present", "auto", "spelt"}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
FIELDS = {
    "code", "name", "severity", "fails", "formats", "when", "schema", "check", "raised_by", "at", "related", "message",
    "help", "fix", "evidence",
}  # fmt: skip
REQUIRED = {"code", "name", "severity", "formats", "message"}
SEVERITIES = ("error", "warning", "info")
MOMENTS = ("parse", "launch", "init", "step", "save", "load")
SCHEMA_KINDS = (
    "unknown-key", "removed-key", "deprecated-key", "deprecated-and-new-key", "both-spellings", "wrong-value",
    "duplicate-key", "inert-key",
)  # fmt: skip


class RuleError(ValueError):
    """A rule file that can't be compiled; the message names the file and the fault."""


def compile_expression(text: str) -> Code:
    """One condition. Raises RuleError where it leaves the subset."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise RuleError(f"not an expression: {text!r} ({error.msg})") from None
    return _expression(tree.body, text)


def _expression(node: ast.expr, text: str) -> Code:
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
            return ["literal", value]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return ["literal", -number]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return ["list", *(_expression(element, text) for element in elements)]
        case ast.Dict(keys=names, values=values) if all(_is_text(name) for name in names):
            pairs = [
                [ast.literal_eval(name), _expression(value, text)]
                for name, value in zip(names, values, strict=True)
                if name
            ]
            return ["object", *pairs]
        case ast.BoolOp(op=op, values=values):
            name = "and" if isinstance(op, ast.And) else "or"
            return [name, *(_expression(value, text) for value in values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", _expression(operand, text)]
        case ast.Compare(left=left, ops=ops, comparators=rights):
            operands = [_expression(operand, text) for operand in (left, *rights)]
            parts: list[Code] = [
                [_COMPARISONS[type(op)], operands[i], operands[i + 1]]
                for i, op in enumerate(ops)
                if type(op) in _COMPARISONS
            ]
            if len(parts) < len(ops):
                raise RuleError(f"comparison not allowed in {text!r}")
            return parts[0] if len(parts) == 1 else ["and", *parts]
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC:
            return [_ARITHMETIC[type(op)], _expression(left, text), _expression(right, text)]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in PREDICATES:
            if len(arguments) != PREDICATES[name]:
                raise RuleError(f"{name}() takes {PREDICATES[name]} argument(s) in {text!r}")
            if name in _PATH_PREDICATES:
                return [name, _dotted(arguments[0], text)]
            return [name, *(_expression(argument, text) for argument in arguments)]
        case ast.Name() | ast.Attribute():
            return _name(_dotted(node, text))
    raise RuleError(f"{ast.unparse(node)!r} is not allowed in {text!r}")


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _name(dotted: str) -> Code:
    root, _, rest = dotted.partition(".")
    if root in ("fact", "context", "key"):
        return [root, rest]
    return ["path", dotted]


def _dotted(node: ast.expr, text: str) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise RuleError(f"{ast.unparse(node)!r} is no path in {text!r}")
    return ".".join([node.id, *reversed(parts)])


def compile_template(text: str) -> list[str | Code]:
    """A message: plain text and `{expression}` pieces; a doubled brace stands for itself. Raises RuleError."""
    pieces: list[str | Code] = []
    plain = ""
    for part in re.split(r"(\{\{|\}\}|\{[^{}]*\})", text):
        if part in ("{{", "}}"):
            plain += part[0]
        elif part.startswith("{") and part.endswith("}"):
            pieces += [plain] if plain else []
            pieces.append(compile_expression(part[1:-1]))
            plain = ""
        elif "{" in part or "}" in part:
            raise RuleError(f"a brace without its other one in {text!r}")
        else:
            plain += part
    return [*pieces, plain] if plain else pieces


def _cases(value: Any, compile_value: Any) -> list[list[Any]]:
    """`X`, or a list of {when, is}, as a list of [condition or null, X]; the first that is true counts."""
    rows = value if isinstance(value, list) else [{"is": value}]
    return [
        [compile_expression(row["when"]) if "when" in row else None, compile_value(row["is"])] for row in rows
    ]


def _places(value: Any) -> list[list[Any]]:
    """`path`, or a list of paths and of {when, is}, as a list of [condition or null, path]."""
    rows = value if isinstance(value, list) else [value]
    return [case for row in rows for case in _cases([row] if isinstance(row, dict) else row, str)]


_EDIT_FIELDS: dict[str, set[str]] = {"remove": set(), "set": {"value"}, "rename": {"to"}, "move": {"to"}}
"""What an edit does to a key, and what else it says."""


def _fixes(value: Any) -> list[list[Any]]:
    """One fix, or a list of them with `when`, as a list of [condition or null, fix]; the first that is true counts.

    A fix is {safe, description, edits}: `safe` by cases, the description a template, and the edits
    [operation, path, argument]: remove a key; set it to the value of an expression, where it is missing too; rename it
    (a template); move it to another path. The path "key" stands for the key that the finding is about.
    """
    rows = value if isinstance(value, list) else [value]
    fixes = []
    for row in rows:
        unknown = set(row) - {"when", "safe", "description", "edits"}
        if unknown or not {"safe", "description", "edits"} <= set(row):
            raise RuleError(f"a fix has safe, description and edits, and may have when: {sorted(row)}")
        fix = {
            "safe": _cases(row["safe"], bool),
            "description": compile_template(row["description"]),
            "edits": [_edit(edit) for edit in row["edits"]],
        }
        fixes.append([compile_expression(row["when"]) if "when" in row else None, fix])
    return fixes


def _edit(edit: dict[str, str]) -> list[Any]:
    operations = [name for name in _EDIT_FIELDS if name in edit]
    if len(operations) != 1 or set(edit) != {operations[0]} | _EDIT_FIELDS[operations[0]]:
        raise RuleError(f"no edit: {edit}")
    (operation,) = operations
    argument: Any = None
    if operation == "set":
        argument = compile_expression(edit["value"])
    elif operation in ("rename", "move"):
        argument = compile_template(edit["to"])
    return [operation, edit[operation], argument]


def split_page(text: str) -> tuple[str, str]:
    """The TOML block of a rule file and the page that a user reads (heading and sections, without the block)."""
    match = re.search(r"^```toml\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise RuleError("no ```toml block")
    return match.group(1), text[: match.start()] + text[match.end() :]


def compile_rule(text: str, page: str, *, own: bool = True) -> dict[str, Any]:
    """One rule file as an entry of the index; `page` is its path within rules/. Raises RuleError.

    A rule of dsconf's own gives evidence, too.
    """
    facts = tomllib.loads(split_page(text)[0])
    unknown = set(facts) - FIELDS
    if unknown:
        raise RuleError(f"unknown field {', '.join(sorted(unknown))}")
    missing = (REQUIRED | ({"evidence"} if own else set())) - set(facts)
    if missing:
        raise RuleError(f"missing field {', '.join(sorted(missing))}")
    if "schema" in facts and facts["schema"] not in SCHEMA_KINDS:
        raise RuleError(f"no schema kind {facts['schema']!r}")
    kinds = [kind for kind in ("schema", "check", "raised_by") if kind in facts]
    if len(kinds) > 1 or not (kinds or "when" in facts):
        raise RuleError("a rule has one of: when (a condition), schema, check, raised_by")
    entry = {
        "code": facts["code"],
        "name": facts["name"],
        "kind": facts.get("schema") or facts.get("check") or facts.get("raised_by") or "when",
        "formats": facts["formats"],
        "severity": _cases(facts["severity"], _one_of(SEVERITIES)),
        "fails": _cases(facts["fails"], _one_of((*MOMENTS, "not"))) if "fails" in facts else [],
        "when": compile_expression(facts["when"]) if "when" in facts else None,
        "at": _places(facts.get("at", [])),
        "related": [
            [path, _cases(note, compile_template)] for path, note in facts.get("related", {}).items()
        ],
        "message": _cases(facts["message"], compile_template),
        "help": _cases(facts["help"], compile_template) if "help" in facts else [],
        "fix": _fixes(facts.get("fix", [])),
        "url": f"rules/{page}",
    }
    return entry


def _one_of(allowed: Iterable[str]) -> Any:
    def check(value: str) -> str:
        if value not in allowed:
            raise RuleError(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return check


def compile_rules(folder: Path) -> list[dict[str, Any]]:
    """Every `<family>/<CODE>-<name>.md` below `folder`, by code. Raises RuleError, naming the file."""
    entries = []
    for path in sorted(folder.glob("*/*.md")):
        page = path.relative_to(folder).as_posix()
        try:
            entry = compile_rule(path.read_text(encoding="utf-8"), page)
            if path.stem != f"{entry['code']}-{entry['name']}":
                raise RuleError(f"the file should be called {entry['code']}-{entry['name']}.md")
        except (ValueError, KeyError) as error:
            raise RuleError(f"{page}: {error}") from None
        entries.append(entry)
    return sorted(entries, key=lambda entry: str(entry["code"]))
