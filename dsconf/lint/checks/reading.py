"""What is remarkable about the text of a file: what is no JSON, what HJSON misreads, what a template leaves open."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dsconf.config.coerce import coerce
from dsconf.config.effective import Config, Facts, Written
from dsconf.document.node import Misread
from dsconf.lint.event import Event
from dsconf.lint.wrong_value import wrong_value

_LENIENT = {"a comment", "a trailing comma", "a byte order mark"}
"""Relaxations that people write on purpose."""


def json_syntax(config: Config, facts: Facts) -> Iterator[Event]:
    """Text that is no JSON, and that HJSON reads as something else than was meant, where the reader is not known."""
    if config.context.consumer is None:
        for path, item, misread in _misread(config):
            name = item.entry.key if item else ""
            key = {"name": name, "why": misread.why, "text": misread.text, "refused": False}
            yield Event("json-syntax", path, misread.span, key)


def json_strictness(config: Config, facts: Facts) -> Iterator[Event]:
    """Text that HJSON reads as it was meant, and `json.load` refuses, where the reader is not known."""
    document = config.document
    if config.context.consumer is not None or document.misreadings:
        return
    odd = [each for each in document.relaxations if each.what not in _LENIENT]
    if not odd:
        return
    first, *others = dict.fromkeys(each.what for each in odd)
    key = {"what": first, "others": ", ".join(others)}
    yield Event("json-strictness", "", odd[0].span, key)


def unquoted_text(config: Config, facts: Facts) -> Iterator[Event]:
    """Text without quotes that DeepSpeed reads as something else than was meant."""
    if config.context.consumer == "deepspeed":
        for path, item, misread in _misread(config):
            yield Event("unquoted-text", path, misread.span, _effect(config, item, misread))


def template_placeholder(config: Config, facts: Facts) -> Iterator[Event]:
    """A file that is filled in before anybody reads it."""
    places = config.document.placeholders
    if places:
        text = config.document.text[slice(*places[0])]
        yield Event("template-placeholder", "", places[0], {"count": len(places), "first": text})


def _misread(config: Config) -> Iterator[tuple[str, Written | None, Misread]]:
    """Everything misread, with the key whose value it is, where it is one."""
    if config.document.misreadings:
        items = {id(item.entry.node): item for item in config.written}
        for misread in config.document.misreadings:
            item = items.get(id(misread.node))
            yield item.path if item else "", item, misread


def _effect(config: Config, item: Written | None, misread: Misread) -> dict[str, object]:
    """What comes of a misread value.

    `effect`: "refused"; "other", another value than the one meant; "same", that very value; "open" where nothing is
    known of the key.
    """
    effect, fails, meant = "open", None, misread.meant
    if item is not None and item.spec is not None:
        reader, strict = item.section.get("reader", "raw"), config.strict(item.path)
        found = wrong_value(item.spec, reader, misread.text, strict=strict)
        fails = found["fails"] if found else None
        if fails is not None:
            effect = "refused"
        elif meant is not None:
            wanted = coerce(item.spec, reader, json.loads(meant), strict=strict)
            read = coerce(item.spec, reader, misread.text, strict=strict)
            # A text that is taken for a boolean is tested for being empty.
            same = bool(read) == wanted if found else read == wanted
            effect = "same" if same else "other"
    return {
        "name": item.entry.key if item else "",
        "text": misread.text,
        "meant": meant,
        "why": misread.why,
        "effect": effect,
        "fails": fails,
        "is_key": misread.node is None,
    }
