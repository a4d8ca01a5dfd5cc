"""What a file holds: the Configs in it, of one format or several, each with the way to read it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dsconf.config.context import CONSUMER_NAMES, Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import Reader, scan
from dsconf.document.node import Document, Entry, Node, Reading, Span
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.consumer import config_of
from dsconf.lint.formats import format_named
from dsconf.lint.inside import documents_inside, language_of
from dsconf.lint.recognise import FSDP_SECTION, format_of, not_deepspeed, shaped_like_deepspeed

Read = Callable[[str], Document]
_YAML = (".yaml", ".yml")


class Piece(NamedTuple):
    """A Config, and how a changed text of its file is read as the Config's document was."""

    config: Config
    read: Read


class Skipped(Exception):
    """A file that is not judged; the message is the reason."""


def is_yaml(path: str) -> bool:
    """Whether a file is YAML by its name."""
    return os.path.splitext(path)[1].lower() in _YAML  # noqa: PTH122


def pieces(path: str, text: str, context: Context, *, recognise: bool) -> list[Piece]:
    """Every Config in a file. Raises Unusable, and Skipped where there is none.

    `recognise`: whether a JSON object that looks like no config is skipped.
    """
    if language_of(path) is not None:
        return _inside(path, text, context)
    if is_yaml(path):
        from dsconf.document.yaml_reader import scan_yaml  # ruamel.yaml takes its time

        return _in_yaml(scan_yaml(path, text), context)
    document = parse(path, text, context)
    name = format_of(document)[0]
    if name is None or name == "deepspeed":
        foreign = not_deepspeed(document, load_keys(context.deepspeed_version)) if recognise else None
        if foreign is not None:
            raise Skipped(foreign)
        return [Piece(config_of(document, context), lambda text: parse(path, text, context))]
    return [_piece(document, name, context, lambda text: parse(path, text, context._replace(consumer=None)))]


def parse(path: str, text: str, context: Context, start: int = 0, end: int | None = None) -> Document:
    """The Document of a JSON text, or of a piece of it, as the consumer reads it. Raises Unusable where it can't."""
    consumer = context.consumer
    reader: Reader = "any" if consumer is None else "hjson" if consumer == "deepspeed" else "json"
    document = scan(path, text, start, end, reader=reader)
    if document.relaxations and consumer is not None and reader == "json":
        what, span = document.relaxations[0]
        name = CONSUMER_NAMES[consumer]
        message = f"{name} reads this file with json.load, which refuses {what}"
        raise Unusable("json-syntax", message, span, document.text)
    return document


def _piece(document: Document, name: str, context: Context, read: Read) -> Piece:
    """The Config of a document of another format than DeepSpeed's."""
    if name == FSDP_SECTION:
        return Piece(_config(_as_section(document), "trainer", context), lambda text: _as_section(read(text)))
    return Piece(_config(document, name, context), read)


def _config(document: Document, name: str, context: Context) -> Config:
    from dsconf.lint.beside import configs_beside  # not for a DeepSpeed config

    found = Config(document, format_named(name).table(context, document), context, format=name)
    return Config(document, found.table, context, format=name, beside=configs_beside(found))


def _as_section(document: Document) -> Document:
    """The document with its root as the section fsdp_config of TrainingArguments."""
    inner = document.root
    root = Node("object", inner.span.start, end=inner.span.end)
    root.entries.append(Entry("fsdp_config", Span(inner.span.start, inner.span.start), inner))
    reading = Reading(root, document.relaxations, document.placeholders, document.misreadings)
    return Document(document.path, document.text, reading, language=document.language)


def _in_yaml(document: Document, context: Context) -> list[Piece]:
    from dsconf.document.yaml_reader import scan_yaml

    def read(text: str) -> Document:
        return scan_yaml(document.path, text)

    name, reason = format_of(document)
    if name == "deepspeed":
        if context.consumer is None:
            raise Skipped("a DeepSpeed config in YAML: who loads it is not known (--consumer says it)")
        return [Piece(config_of(document, context), read)]
    found = [_piece(document, name, context, read)] if name is not None else []
    if name != "accelerate":
        found += _sections(document, _within(name, context), read)
    if not found:
        raise Skipped(reason)
    return found


def _sections(document: Document, context: Context, read: Read) -> list[Piece]:
    """The DeepSpeed configs that stand in a YAML as sections."""
    table = load_keys(context.deepspeed_version)
    found = []
    for key in document.root.members():
        section = _section(document, key)
        if section is not None and shaped_like_deepspeed(section, table):
            found.append(Piece(config_of(section, context), partial(_read_section, read, key)))
    return found


def _read_section(read: Read, key: str, text: str) -> Document:
    document = read(text)
    return _section(document, key) or document


def _section(document: Document, key: str) -> Document | None:
    """A section of a document as one of its own, None where it is no object."""
    entry = document.root.members().get(key)
    if entry is None or entry.node.kind != "object":
        return None
    reading = Reading(entry.node, document.relaxations, document.placeholders, document.misreadings)
    return Document(document.path, document.text, reading, language=document.language)


def _within(name: str | None, context: Context) -> Context:
    """The Context of a DeepSpeed config that stands in a file of a trainer."""
    if name in ("trainer", "axolotl", "llamafactory") and context.consumer is None:
        return context._replace(consumer="trainer")
    return context


def _inside(path: str, text: str, context: Context) -> list[Piece]:
    """Every config inside a file of another language."""
    table = load_keys(context.deepspeed_version)
    try:
        documents = documents_inside(path, text, table, scan)
        calls = _calls(path, text, context)
    except ValueError as error:
        raise Skipped(str(error)) from None
    found = [Piece(config_of(document, context), _again(document)) for document in documents]
    if not (found or calls):
        raise Skipped("it holds no DeepSpeed config")
    return sorted([*found, *calls], key=lambda piece: piece.config.document.root.span)


def _again(document: Document) -> Read:
    """How a piece of JSON inside another text is read where that changed within the piece."""
    start, end = document.root.span
    return lambda text: scan(document.path, text, start, end + len(text) - len(document.text))


def _calls(path: str, text: str, context: Context) -> list[Piece]:
    """The TrainingArguments that a Python file makes."""
    if language_of(path) != "Python" or ("TrainingArguments" not in text and "Config(" not in text):
        return []
    from dsconf.document.python_calls import training_arguments

    documents = [
        Document(path, text, Reading(node, [], [], []), language="python")
        for node in training_arguments(text)
    ]
    return [
        Piece(_config(document, "trainer", context), _again(document))
        for document in documents
        if {"fsdp", "fsdp_config", "deepspeed"} & document.root.members().keys()
    ]
