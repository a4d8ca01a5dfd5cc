"""How a framework reads a section, and the base class that carries it."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dsconf.formats.key import Key, Moment, Way

Reader = Literal["pydantic", "raw", "environment", "trainer", "lax"]
Unknown = Literal["raises", "ignored", "depends"]


class Reads(NamedTuple):
    """What the framework does with a value beyond what the type of the field says."""

    fails: Moment | None = None
    """When a value that is not allowed fails in a raw section; None: it is kept and used as it is."""
    null: bool = True
    """False: leaving the key out is fine, but writing null is not."""
    null_in_alias: bool = True
    """False: null may not be written in the other spellings."""
    unset: bool = False
    """Leaving the key out is not the same as any value that can be written, null included."""
    not_empty: bool = False
    """A raw section that refuses what is false to Python, whatever its type, as it is parsed."""
    converts: bool = False
    """A raw section that calls Python's own int(), str() or bool(), by the type of the field, as it is parsed."""
    ignore_case: bool = False
    """The allowed strings may be written in any case."""
    iterated: bool = False
    """A raw section that takes a string or an object for the list of its letters or keys."""
    switches: str | None = None
    """The key of a section that true and false in place of the section set to 1 and 0."""
    int_only: bool = False
    """A raw section that insists on an integer: 100.0 fails."""
    python_number: bool = False
    """A pydantic section that first calls Python's own int() or float() and refuses booleans."""
    way: Way = "text"
    """What happens to a value on its way through the environment to a worker, in such a section."""
    numbered: int = 0
    """How many of the allowed words, the first ones, can be written as their numbers from 1 on as well."""
    read_if: str | None = None
    """What has to hold elsewhere in the file for anybody to read the key; None: what holds for its section."""


class Section(BaseModel):
    """One object of the config; the class variables say how the framework reads it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    reader: ClassVar[Reader] = "raw"
    """`pydantic`: values are coerced and keys with the value "auto" are dropped; `raw`: kept as written;
    `environment`: a launcher hands them on as text in environment variables; `trainer`: TrainingArguments makes
    arguments of a plugin of them; `lax`: pydantic again, where "auto" is a value as any other."""
    read_if: ClassVar[str | None] = None
    """What has to hold elsewhere in the file for anybody to read the keys."""
    unknown: ClassVar[Unknown] = "ignored"
    """What an undeclared sibling key does; `depends`: the class named by `type` decides."""
    shared: ClassVar[bool] = False
    """Whether others have keys in the same object, so that nothing is known of an undeclared one."""
    wins: ClassVar[Literal["canonical", "alias", "last"]] = "canonical"
    """Which of two spellings of a key counts: one of them wherever it stands, or the last one of the text."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        target = handler.resolve_ref_schema(schema)
        target.pop("title", None)
        target["description"] = " ".join((cls.__doc__ or "").split())
        if cls.unknown != "raises":
            target["additionalProperties"] = True
        properties: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            written = target["properties"][name]
            properties[name] = _editor_schema(field, written, key_of(field))
            for alias in key_of(field).aliases:
                # The fillers of "auto" do not look for other spellings.
                other = _editor_schema(field, written, key_of(field)._replace(auto=None))
                del other["description"]
                other.pop("default", None)
                properties[alias] = {"description": f"Other spelling of {name}.", **other, "x-alias-of": name}
        target["properties"] = properties
        return schema


class PydanticSection(Section):
    """A section that DeepSpeed reads with a pydantic model of its own."""

    reader = "pydantic"
    unknown = "raises"


def metadata(field: FieldInfo) -> Iterator[Any]:
    """Everything attached to a field, also to the members of a union."""
    yield from field.metadata
    for member in members(field.annotation):
        yield from getattr(member, "__metadata__", ())


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation alone."""
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)


def key_of(field: FieldInfo) -> Key:
    """The `Key` of a field, or one with nothing to say."""
    return next((m for m in metadata(field) if isinstance(m, Key)), Key())


def reads_of(field: FieldInfo) -> Reads:
    """The `Reads` of a field, or one with nothing to say."""
    return next((m for m in metadata(field) if isinstance(m, Reads)), Reads())


def is_nullable(field: FieldInfo) -> bool:
    """Whether null may be written."""
    return reads_of(field).null and NoneType in members(field.annotation)


def _editor_schema(field: FieldInfo, written: JsonSchemaValue, key: Key) -> JsonSchemaValue:
    """The schema of one key as an editor should see it."""
    schema: JsonSchemaValue = {k: v for k, v in written.items() if k != "title"}
    schema["description"] = " ".join((field.description or "").split())
    if not is_nullable(field):
        schema = _without_null(schema)
    if schema.get("default", ...) is None or isinstance(field.default, BaseModel):
        del schema["default"]
    if key.status == "removed":
        return {
            "description": schema["description"],
            "not": {},
            "deprecated": True,
            "x-status": "removed",
            **({"x-replacement": key.replacement} if key.replacement else {}),
        }
    if key.auto is not None:
        outer = {k: v for k, v in schema.items() if k in ("description", "default")}
        inner = {k: v for k, v in schema.items() if k not in outer}
        options = inner["anyOf"] if set(inner) == {"anyOf"} else [inner]
        fillers = key.auto.by_filler()
        schema = {**outer, "anyOf": [*options, {"const": "auto"}], "x-auto-filled-by": fillers}
    if key.status != "active":
        schema["x-status"] = key.status
    if key.status == "deprecated":
        schema["deprecated"] = True
    if key.replacement:
        schema["x-replacement"] = key.replacement
    if key.unit:
        schema["x-unit"] = key.unit
    return schema


def _without_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema without its null branch; a branch left alone is merged in."""
    if schema.get("type") == "null":
        return {"not": {}, **{k: v for k, v in schema.items() if k != "type"}}
    branches = [b for b in schema.get("anyOf", []) if b != {"type": "null"}]
    if not branches:
        return schema
    rest = {k: v for k, v in schema.items() if k != "anyOf"}
    return {**branches[0], **rest} if len(branches) == 1 else {**rest, "anyOf": branches}
