"""DeepSpeed configs inside other files: dicts in Python, fenced blocks in Markdown, heredocs in shell scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from dsconf.config.tables import Spec
from dsconf.document.node import Document, Node, Reading
from dsconf.document.source import Unusable
from dsconf.lint.recognise import shaped_like_deepspeed

_LANGUAGES = {".py": "Python", ".md": "Markdown", ".markdown": "Markdown", ".sh": "shell", ".bash": "shell"}


def language_of(path: str) -> str | None:
    """The language of a file that may hold configs, by the end of its name; None for any other file."""
    return _LANGUAGES.get(os.path.splitext(path)[1].lower())  # noqa: PTH122


def documents_inside(
    path: str, text: str, table: Spec, scan: Callable[[str, str, int, int], Document]
) -> list[Document]:
    """The configs inside such a file, in the order of the text; their positions are those in the file.

    `scan` reads a piece of a text. What does not parse is no config: examples leave things out. Raises ValueError, with
    the reason, for a Python file that can't be read.
    """
    language = language_of(path)
    if language == "Python":
        return _in_python(path, text, table)
    from dsconf.document.embedded import fenced_blocks, heredocs  # not for a JSON file

    documents = []
    for start, end in fenced_blocks(text) if language == "Markdown" else heredocs(text):
        try:
            document = scan(path, text, start, end)
        except Unusable:
            continue
        if shaped_like_deepspeed(document, table):
            # What a page shows may be a part of a config.
            document.root.open = language == "Markdown"
            documents.append(document)
    return documents


def _in_python(path: str, text: str, table: Spec) -> list[Document]:
    from dsconf.document.python_dicts import NotPython, dict_literals  # not for a JSON file

    try:
        roots = dict_literals(text)
    except NotPython as error:
        raise ValueError(str(error)) from None
    return [document for root in roots for document in _configs(path, text, root, table)]


def _configs(path: str, text: str, node: Node, table: Spec) -> Iterator[Document]:
    """The outermost configs in a tree: it may be a table of configs by name."""
    document = Document(path, text, Reading(node, [], [], []), language="python")
    if shaped_like_deepspeed(document, table):
        yield document
        return
    for entry in node.entries:
        if entry.node.kind == "object":
            yield from _configs(path, text, entry.node, table)
