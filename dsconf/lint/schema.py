"""The walk over the key table: keys that a section does not have, values of a wrong type, keys written twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.effective import Config, Spec, Written
from dsconf.document.node import Document, Span
from dsconf.lint.nearest import nearest


class Event(NamedTuple):
    """Something that a schema rule judges: `kind` names the rules, `key` is what their conditions read."""

    kind: str
    path: str
    span: Span
    key: Mapping[str, object]
    related: tuple[tuple[Span, str], ...] = ()


def events(config: Config) -> Iterator[Event]:
    """Every event of one file."""
    yield from _duplicates(config.document)
    for item in config.written:
        if item.spec is None:
            raises = item.section.get("unknown") == "raises"
            if not item.section.get("open") and (raises or not _is_remark(item.entry.key)):
                yield _unknown(config, item)
        else:
            yield from _wrong_type(item)


def _duplicates(document: Document) -> Iterator[Event]:
    for path, node in document.objects():
        first: dict[str, Span] = {}
        for entry in node.entries:
            if entry.key in first:
                place = ((first[entry.key], "first written here"),)
                key = {"name": entry.key, "value": entry.node.plain(), "section": ".".join(path)}
                yield Event("duplicate-key", ".".join((*path, entry.key)), entry.key_span, key, place)
            first.setdefault(entry.key, entry.key_span)


def _is_remark(name: str) -> bool:
    """Whether a key is meant for readers: people write remarks as "_comment" or "//", editors want "$schema"."""
    return name.startswith(("_", "//", "#", "$")) or name.lower() in ("comment", "comments")


def _unknown(config: Config, item: Written) -> Event:
    section = item.path.rpartition(".")[0]
    keys = item.section["keys"]
    names = {name.lower(): name for name in keys if keys[name].get("status") != "removed"}
    suggestion = names.get(nearest(item.entry.key, names) or "")
    spec = keys.get(suggestion, {})
    spec = keys[spec["alias"]] if "alias" in spec else spec
    key = {
        "name": item.entry.key,
        "section": section,
        "section_name": f'"{section}"' if section else "the top level",
        "value": item.entry.node.plain(),
        "raises": item.section.get("unknown") == "raises",
        "known": item.section.get("unknown") != "depends",
        "ignored_name": _ignored_name(config, item),
        "suggestion": suggestion,
        "default": spec.get("default") if not isinstance(spec.get("default"), list | dict) else None,
    }
    return Event("unknown-key", item.path, item.entry.key_span, key)


def _ignored_name(config: Config, item: Written) -> bool:
    """Whether even a section that refuses unknown keys lets the key pass."""
    if item.section.get("reader") != "pydantic":
        return False
    return item.entry.key == "strict" or (item.entry.node.scalar == "auto" and not config.strict(item.path))


def _wrong_type(item: Written) -> Iterator[Event]:
    spec: Spec = item.spec or {}
    raw = item.entry.node.plain()
    if raw == "auto" or spec.get("status") == "removed":
        return
    reader = item.section.get("reader", "raw")
    result = coerce(spec, reader, raw)
    if isinstance(result, Invalid):
        key = {
            "name": item.entry.key,
            "value": raw,
            "expected": result.expected,
            "fails": result.fails,
            "quoted_number": _takes_number(spec) and _quotes_are_wrong(spec, reader, raw),
        }
        yield Event("wrong-type", item.path, item.entry.span, key)


def _takes_number(spec: Spec) -> bool:
    types = spec.get("type", ())
    return bool(
        {"int", "float"}
        & {types if isinstance(types, str) else "", *([] if isinstance(types, str) else types)}
    )


def _quotes_are_wrong(spec: Spec, reader: str, raw: object) -> bool:
    """Whether a refused value is a number in quotes, and refused for them: the number itself may be wrong too."""
    number = _number(raw) if isinstance(raw, str) else None
    if number is None:
        return False
    return "quoted_fails" in spec or not isinstance(coerce(spec, reader, number), Invalid)


def _number(text: str) -> float | None:
    """The finite number that a text holds, None where it holds none."""
    try:
        number = float(text)
        return int(text) if text.strip().lstrip("+-").isdigit() else number if number - number == 0 else None
    except (ValueError, OverflowError):
        return None
