"""What a file holds: the Configs in it, of one format or several, each with the way to read it again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.node import Document, Entry, Node, Reading, Span
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.beside import configs_beside
from dsconf.lint.consumer import config_of
from dsconf.lint.formats import format_named
from dsconf.lint.inside import documents_inside, language_of
from dsconf.lint.recognise import (
    FSDP_SECTION,
    NO_KEYS,
    STRONG,
    format_of,
    mentions_config,
    not_deepspeed,
    shaped_like_deepspeed,
)

Read = Callable[[str], Document]
Scan = Callable[..., Document]
Parse = Callable[[str, str, Context], Document]
_YAML = (".yaml", ".yml")
_SHORT_FLOAT = r"[-+]?\d+[eE][-+]?\d+"
"""Text to PyYAML, and a number to Hydra."""
_OF_TRAINERS = ("trainer", "axolotl", "llamafactory")


class Piece(NamedTuple):
    """A Config, and how a changed text of its file is read as the Config's document was."""

    config: Config
    read: Read


class Skipped(Exception):
    """A file that is not judged; the message is the reason."""


def is_yaml(path: str) -> bool:
    """Whether a file is YAML by its name."""
    return os.path.splitext(path)[1].lower() in _YAML  # noqa: PTH122


class Opener:
    """Finds the Configs of files, as they are in one Context."""

    def __init__(
        self, context: Context, scan: Scan, parse: Parse, overrides: Mapping[str, object] | None = None
    ) -> None:
        """`scan` reads a piece of JSON, and `parse` a whole file of it as its consumer does.

        `overrides` are values by path that count instead of a file's, in the Config whose format has the key: that of
        the file, else the one beside it.
        """
        self._context = context
        self._scan = scan
        self._parse = parse
        self._overrides = overrides or {}

    def pieces(self, path: str, text: str, *, recognise: bool) -> list[Piece]:
        """Every Config in a file. Raises Unusable, and Skipped where there is none.

        `recognise`: whether a JSON object that looks like no config is skipped.
        """
        if language_of(path) is not None:
            return self._inside(path, text)
        if is_yaml(path):
            if not mentions_config(text):
                raise Skipped(NO_KEYS)
            from dsconf.document.yaml_reader import scan_yaml  # ruamel.yaml takes its time

            return self._in_yaml(scan_yaml(path, text), partial(scan_yaml, path), recognise=recognise)
        context = self._context
        document = self._parse(path, text, context)
        name = format_of(document)[0]
        if name is not None and name != "deepspeed":
            open_ = context._replace(consumer=None)
            return [self._piece(document, name, lambda text: self._parse(path, text, open_))]
        foreign = not_deepspeed(document, load_keys(context.deepspeed_version)) if recognise else None
        if foreign is not None:
            raise Skipped(foreign)
        return [Piece(self._of_deepspeed(document, context), lambda text: self._parse(path, text, context))]

    def _piece(self, document: Document, name: str, read: Read) -> Piece:
        """The Config of a document of another format than DeepSpeed's."""
        if name == FSDP_SECTION:
            return Piece(self._config(_as_section(document), "trainer"), lambda text: _as_section(read(text)))
        return Piece(self._config(document, name), read)

    def _config(self, document: Document, name: str) -> Config:
        table = format_named(name).table_for(document, self._context)
        found = Config(document, table, self._context, format=name)
        own = {path: value for path, value in self._overrides.items() if found.knows(path)}
        beside = configs_beside(found, self._scan, self._of_deepspeed)
        if not (own or beside):
            return found
        return Config(document, table, self._context, own, format=name, beside=beside)

    def _of_deepspeed(self, document: Document, context: Context) -> Config:
        """The Config of a DeepSpeed config, with the overrides that its version knows."""
        if not self._overrides:
            return config_of(document, context)
        found = config_of(document, context)
        return config_of(
            document, context, {path: value for path, value in self._overrides.items() if found.knows(path)}
        )

    def _in_yaml(self, document: Document, read: Read, *, recognise: bool) -> list[Piece]:
        context = self._context
        name, reason = format_of(document)
        if name == "deepspeed":
            if context.consumer is None:
                raise Skipped(
                    "a DeepSpeed config in YAML: who loads it is not known (--consumer says who reads it)"
                )
            foreign = not_deepspeed(document, load_keys(context.deepspeed_version)) if recognise else None
            if foreign is not None:
                raise Skipped(foreign)
            return [self._as_json(document) or Piece(self._of_deepspeed(document, context), read)]
        found = [self._piece(document, name, read)] if name is not None else []
        if name in _OF_TRAINERS and context.consumer is None:
            context = context._replace(consumer="trainer")
        if name != "accelerate":
            found += _sections(document, context, read)
        if not found:
            raise Skipped(reason)
        return found

    def _as_json(self, document: Document) -> Piece | None:
        """A config that is JSON but for the name of its file, which its consumer does not look at."""
        if not document.text.lstrip().startswith("{"):
            return None
        path, context = document.path, self._context
        try:
            config = self._of_deepspeed(self._parse(path, document.text, context), context)
            return Piece(config, lambda text: self._parse(path, text, context))
        except Unusable:
            return None

    def _inside(self, path: str, text: str) -> list[Piece]:
        """Every config inside a file of another language."""
        table = load_keys(self._context.deepspeed_version)
        try:
            documents = documents_inside(path, text, table, self._scan)
            calls = self._calls(path, text)
        except ValueError as error:
            raise Skipped(str(error)) from None
        found = [
            Piece(self._of_deepspeed(document, self._context), self._again(document))
            for document in documents
        ]
        if not (found or calls):
            raise Skipped("it holds no DeepSpeed config")
        return sorted([*found, *calls], key=lambda piece: piece.config.document.root.span)

    def _again(self, document: Document) -> Read:
        """How a piece of JSON inside another text is read where that changed within the piece."""
        start, end = document.root.span
        return lambda text: self._scan(document.path, text, start, end + len(text) - len(document.text))

    def _calls(self, path: str, text: str) -> list[Piece]:
        """The TrainingArguments that a Python file makes."""
        if language_of(path) != "Python" or ("TrainingArguments" not in text and "Config(" not in text):
            return []
        from dsconf.document.python_calls import training_arguments  # few files need it

        documents = [
            Document(path, text, Reading(node, [], [], []), language="python")
            for node in training_arguments(text)
        ]
        return [
            Piece(self._config(document, "trainer"), self._again(document))
            for document in documents
            if {"fsdp", "fsdp_config", "deepspeed"} & document.root.members().keys()
        ]


def _as_section(document: Document) -> Document:
    """The document with its root as the section fsdp_config of TrainingArguments."""
    inner = document.root
    root = Node("object", inner.span.start, end=inner.span.end)
    root.entries.append(Entry("fsdp_config", Span(inner.span.start, inner.span.start), inner))
    reading = Reading(root, document.relaxations, document.placeholders, document.misreadings)
    return Document(document.path, document.text, reading, language=document.language)


def _sections(document: Document, context: Context, read: Read) -> list[Piece]:
    """The DeepSpeed configs that stand in a YAML as sections."""
    table = load_keys(context.deepspeed_version)
    found = []
    for key in document.root.members():
        section = _section(document, key)
        if section is None or not (_is_of_deepspeed(key) or section.root.members().keys() & STRONG):
            continue
        if shaped_like_deepspeed(section, table):
            found.append(Piece(config_of(section, context), partial(_read_section, read, key)))
    return found


def _is_of_deepspeed(key: str) -> bool:
    """Whether a section is called as one of DeepSpeed's keys. Others have many of those, too, but not `STRONG` ones."""
    name = key.lower()
    return "deepspeed" in name or name.startswith("ds_") or name == "ds"


def _as_hydra_reads(node: Node, text: str) -> None:
    """Let an object and those in it hold more than is written, and numbers such as 1e-4 be numbers."""
    node.open = True
    for entry in node.entries:
        value = entry.node
        if value.kind == "object":
            _as_hydra_reads(value, text)
        elif value.kind == "string" and re.fullmatch(_SHORT_FLOAT, text[slice(*value.span)]):
            value.kind, value.scalar = "number", float(text[slice(*value.span)])


def _read_section(read: Read, key: str, text: str) -> Document:
    document = read(text)
    return _section(document, key) or document


def _section(document: Document, key: str) -> Document | None:
    """A section of a document as one of its own, None where it is no object."""
    members = document.root.members()
    entry = members.get(key)
    if entry is None or entry.node.kind != "object":
        return None
    if "defaults" in members and members["defaults"].node.kind == "array":
        _as_hydra_reads(entry.node, document.text)  # it merges other files into the section
    reading = Reading(entry.node, document.relaxations, document.placeholders, document.misreadings)
    return Document(document.path, document.text, reading, language=document.language)
