"""Generates the key tables and the editor schemas from the models: `python -m dsconf.formats.table`.

The key table is a tree of three kinds of nodes; in brackets what holds where a field is left out.

object  type: "object", or a list with "object" in it; reader ("raw"); unknown ("ignored"); read_if
        (nothing), also of a leaf, see `Reads`; nullable (false); default; wrong_fails ("parse");
        switches (none), see `Reads`; wins (canonical), see `Section`; and one of
        keys, beside it mistaken (names that nobody reads, with the key that they stand for);
        each, the node of every value where the names are free; open: true where nothing inside is declared, also
        beside keys, where others have keys in the same object
leaf    type: int, float, bool, str, list, object, any, null, or a list of these; default (there is none: an
        absent key has no value); values (all; of several types it restricts the strings); items and
        item_values, the type and the allowed values of the items of a list; each, the node of every item
        that is an object; min, max, exclusive_min, exclusive_max; nullable (false); status ("active");
        replacement; filled_by (what each
        library puts for "auto"); quoted_fails and wrong_fails (never: the value is kept); unit; not_empty,
        converts, ignore_case, iterated, int_only and python_number (false), see `Reads`; shown (the
        name), see `Key`; in a section with the reader "environment" or "trainer" also way ("text") and numbered (0)
alias   alias: the name, in the same section, of the key that it is another spelling of; whatever else
        stands here holds for this spelling. Nobody fills an "auto" in another spelling, or below it
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

from dsconf.formats.accelerate.model import AccelerateConfig
from dsconf.formats.axolotl.model import AxolotlConfig
from dsconf.formats.deepspeed.model import DeepSpeedConfig
from dsconf.formats.llamafactory.model import LlamaFactoryConfig
from dsconf.formats.section import Section, is_nullable, key_of, members, metadata, reads_of
from dsconf.formats.trainer.model import TrainerConfig

FORMATS: dict[str, tuple[type[Section], str]] = {
    "deepspeed": (DeepSpeedConfig, "DeepSpeed configuration"),
    "accelerate": (AccelerateConfig, "Accelerate configuration"),
    "trainer": (TrainerConfig, "Training arguments of transformers"),
    "axolotl": (AxolotlConfig, "Axolotl configuration"),
    "llamafactory": (LlamaFactoryConfig, "LLaMA-Factory configuration"),
}
"""By the name of a format, which is that of its room, the model of its root and the title of its schema."""

Node = dict[str, Any]

_NAMES: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", Any: "any", dict: "object"}


def key_table(model: type[Section]) -> Node:
    """The root node of the key table of a model."""
    return {"type": "object", **_section(model)}


def editor_schema(model: type[Section], title: str) -> dict[str, Any]:
    """The JSON Schema of a config, for editors: right types only, not all that the framework would coerce."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **model.model_json_schema(),
    }


def artefacts() -> dict[Path, str]:
    """The generated files and what they have to contain."""
    rooms = Path(__file__).parent
    schemas = rooms.parents[1] / "schemas"
    files = {}
    for name, (model, title) in FORMATS.items():
        files[rooms / name / "keys.json"] = _table_text(key_table(model))
        files[schemas / f"{name}.schema.json"] = json.dumps(editor_schema(model, title), indent=2) + "\n"
    return files


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
    if model.shared:
        node["open"] = True
    if model.wins != "canonical":
        node["wins"] = model.wins
    if model.read_if:
        node["read_if"] = model.read_if
    keys: Node = {}
    for name, field in model.model_fields.items():
        keys[name] = _node(field)
        differs = {} if reads_of(field).null_in_alias else {"nullable": False}
        keys.update({alias: {"alias": name, **differs} for alias in key_of(field).aliases})
    mistaken = {wrong: name for name, field in model.model_fields.items() for wrong in key_of(field).mistaken}
    return {**node, **({"mistaken": mistaken} if mistaken else {}), "keys": keys}


def _node(field: FieldInfo) -> Node:
    key, reads = key_of(field), reads_of(field)
    node: Node = {}
    kinds: list[str] = []
    values: list[Any] = []
    for annotation in members(field.annotation):
        _describe(annotation, node, kinds, values)
    # An integer is a number too, so that "float" alone says it.
    kinds = [kind for kind in kinds if kind != "int" or "float" not in kinds]
    kinds = kinds or ["null"]
    node = {"type": kinds[0] if len(kinds) == 1 else kinds, **node}
    if values:
        node["values"] = values
    for mark in metadata(field):
        _bounds(mark, node)
    if is_nullable(field):
        node["nullable"] = True
    # Where null may not be written, None only says that there is no value without the key.
    has_value = {"object", "any"} & set(kinds) or field.default is not None or is_nullable(field)
    if has_value and key.status != "removed" and not reads.unset:
        node["default"] = _plain_default(field.default)
    for name, value in (
        ("status", key.status if key.status != "active" else None),
        ("replacement", key.replacement),
        ("filled_by", key.auto.by_filler() if key.auto else None),
        ("quoted_fails", key.quoted_fails),
        ("wrong_fails", reads.fails),
        ("not_empty", reads.not_empty),
        ("converts", reads.converts),
        ("ignore_case", reads.ignore_case),
        ("iterated", reads.iterated),
        ("switches", reads.switches),
        ("int_only", reads.int_only),
        ("python_number", reads.python_number),
        ("way", reads.way if reads.way != "text" else None),
        ("numbered", reads.numbered),
        ("read_if", reads.read_if),
        ("shown", key.shown),
        ("unit", key.unit),
    ):
        if value:
            node[name] = value
    for name in ("each", "keys"):
        if name in node:
            node[name] = node.pop(name)
    if "each" in node and reads.fails:
        node["each"] = {"type": "object", "wrong_fails": reads.fails, **node["each"]}
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
        _describe_items(get_args(annotation)[0], node)
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        kinds.append("object")
        node.update(_section(annotation))
    elif origin is dict:
        kinds.append("object")
        below = get_args(annotation)[1]
        node.update({"open": True} if below is Any else {"each": {"type": "object", **_section(below)}})
    elif annotation is not NoneType:
        kinds.append(_NAMES[annotation])


def _describe_items(item: Any, node: Node) -> None:
    if get_origin(item) is Literal:
        node["items"] = _NAMES[type(get_args(item)[0])]
        node["item_values"] = list(get_args(item))
    elif item in _NAMES:
        node.update({} if item is Any else {"items": _NAMES[item]})
    else:
        node["items"] = "object"
        node["each"] = {"type": "object", **_section(item)}


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
        if "each" in node:
            head = json.dumps({name: value for name, value in node.items() if name != "each"})[1:-1]
            return f'{{{head}, "each": {write(node["each"], indent)}}}'
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
