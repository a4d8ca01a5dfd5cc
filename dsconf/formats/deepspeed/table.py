"""Generates the key table and the editor schema from the models: `python -m dsconf.formats.deepspeed.table`.

The key table is a tree of three kinds of nodes; in brackets what holds where a field is left out.

object  type: "object", or a list with "object" in it; reader ("raw"); unknown ("ignored"); nullable
        (false); default; wrong_fails ("parse"); and either keys, or open: true where they are not declared
leaf    type: int, float, bool, str, list, object, any, or a list of these; default (there is none: an absent
        key has no value); values (all; of several types it restricts the strings); items, the type of the
        items of a list; min, max, exclusive_min, exclusive_max; nullable (false); status ("active");
        replacement; filled_by; quoted_fails and wrong_fails (never: the value is kept); unit; ignore_case,
        int_only and python_number (false), see `Reads`
alias   alias: the name, in the same section, of the key that it is another spelling of
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dsconf.formats.deepspeed.keys import KEYS_FILE
from dsconf.formats.deepspeed.model import DeepSpeedConfig, Section
from dsconf.formats.deepspeed.model.base import is_nullable, key_of, members, metadata, reads_of

SCHEMA_FILE = Path(__file__).parents[3] / "schemas" / "deepspeed.schema.json"

Node = dict[str, Any]

_NAMES: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", Any: "any", dict: "object"}


def key_table() -> Node:
    """The root node of the key table."""
    return {"type": "object", **_section(DeepSpeedConfig)}


def editor_schema() -> dict[str, Any]:
    """The JSON Schema of a config, for editors: right types only, not all that DeepSpeed would coerce."""
    schema = DeepSpeedConfig.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "DeepSpeed configuration",
        **schema,
    }


def artefacts() -> dict[Path, str]:
    """The generated files and what they have to contain."""
    return {
        Path(KEYS_FILE): _table_text(key_table()),
        SCHEMA_FILE: json.dumps(editor_schema(), indent=2) + "\n",
    }


def main() -> int:
    """Write the generated files."""
    for path, text in artefacts().items():
        path.write_text(text, encoding="utf-8")
    return 0


def _section(model: type[Section]) -> Node:
    node: Node = {}
    if model.reader != "raw":
        node["reader"] = model.reader
    if model.unknown != "ignored":
        node["unknown"] = model.unknown
    keys: Node = {}
    for name, field in model.model_fields.items():
        keys[name] = _node(field)
        keys.update({alias: {"alias": name} for alias in key_of(field).aliases})
    return {**node, "keys": keys}


def _node(field: FieldInfo) -> Node:
    key, reads = key_of(field), reads_of(field)
    node: Node = {}
    kinds: list[str] = []
    values: list[Any] = []
    for annotation in members(field.annotation):
        _describe(annotation, node, kinds, values)
    # An integer is a number too, so that "float" alone says it.
    kinds = [kind for kind in kinds if kind != "int" or "float" not in kinds]
    node = {"type": kinds[0] if len(kinds) == 1 else kinds, **node}
    if values:
        node["values"] = values
    for mark in metadata(field):
        _bounds(mark, node)
    if is_nullable(field):
        node["nullable"] = True
    # Where null may not be written, None only says that there is no value without the key.
    if key.status != "removed" and ("object" in kinds or field.default is not None or is_nullable(field)):
        node["default"] = _plain_default(field.default)
    for name, value in (
        ("status", key.status if key.status != "active" else None),
        ("replacement", key.replacement),
        ("filled_by", list(key.auto_filled_by)),
        ("quoted_fails", key.quoted_fails),
        ("wrong_fails", reads.fails),
        ("ignore_case", reads.ignore_case),
        ("int_only", reads.int_only),
        ("python_number", reads.python_number),
        ("unit", key.unit),
    ):
        if value:
            node[name] = value
    if "keys" in node:
        node["keys"] = node.pop("keys")
    return node


def _describe(annotation: Any, node: Node, kinds: list[str], values: list[Any]) -> None:
    """Add what one member of a union says."""
    origin = get_origin(annotation)
    if origin is Annotated:
        _describe(get_args(annotation)[0], node, kinds, values)
    elif origin is Literal:
        values += get_args(annotation)
        kinds += dict.fromkeys(_NAMES[type(value)] for value in get_args(annotation))
    elif origin is list:
        kinds.append("list")
        node["items"] = _NAMES[get_args(annotation)[0]]
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        kinds.append("object")
        node.update(_section(annotation))
    elif origin is dict:
        kinds.append("object")
        node["open"] = True
    elif annotation is not NoneType:
        kinds.append(_NAMES[annotation])


def _bounds(mark: object, node: Node) -> None:
    if isinstance(mark, Ge):
        node["min"] = mark.ge
    elif isinstance(mark, Gt):
        node["exclusive_min"] = mark.gt
    elif isinstance(mark, Le):
        node["max"] = mark.le
    elif isinstance(mark, Lt):
        node["exclusive_max"] = mark.lt
    else:
        for inner in getattr(mark, "metadata", ()):
            _bounds(inner, node)


def _plain_default(value: Any) -> Any:
    # The default of a section is the empty object: its keys have defaults of their own.
    return {} if isinstance(value, BaseModel) else value


def _table_text(table: Node) -> str:
    """JSON with one leaf per line."""

    def write(node: Node, indent: str) -> str:
        if "keys" not in node:
            return json.dumps(node)
        head = json.dumps({name: value for name, value in node.items() if name != "keys"})[1:-1]
        inner = indent + "  "
        keys = ",\n".join(
            f"{inner}{json.dumps(name)}: {write(below, inner)}" for name, below in node["keys"].items()
        )
        return f'{{{head}, "keys": {{\n{keys}\n{indent}}}}}'

    return write(table, "") + "\n"


if __name__ == "__main__":
    sys.exit(main())
