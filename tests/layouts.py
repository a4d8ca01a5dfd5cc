"""The same JSON in many layouts, and what of a text has to survive an edit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from dsconf.document.json_scanner import scan
from dsconf.document.node import Document, Node


def layouts(text: str) -> Iterator[str]:
    """The text itself, and its values laid out in other ways; those with comments are no strict JSON."""
    yield text
    document = scan("", text)
    wide = _spread(document, document.root, "", "  ", "", "")
    yield _spread(document, document.root, "", "\t", "", "") + "\n"
    yield wide.replace("\n", "\r\n")
    yield _compact(document, document.root)
    yield _spread(document, document.root, "", "    ", ",", "") + "\n"
    yield (
        _spread(document, document.root, "", "  ", "", " // it's a remark, with {braces}") + "\n// the end\n"
    )
    yield "# before\n" + _spread(document, document.root, "", " ", ",", " /* a: 1, */")


def _spread(document: Document, node: Node, indent: str, unit: str, trailing: str, comment: str) -> str:
    if node.kind != "object" or not node.entries:
        return document.text[node.span.start : node.span.end]
    inner = indent + unit
    lines = []
    for i, entry in enumerate(node.entries):
        value = _spread(document, entry.node, inner, unit, trailing, comment)
        comma = "," if i + 1 < len(node.entries) else trailing
        lines.append(f"{inner}{json.dumps(entry.key)}: {value}{comma}{comment}\n")
    return f"{{{comment}\n{''.join(lines)}{indent}}}"


def _compact(document: Document, node: Node) -> str:
    if node.kind != "object":
        return document.text[node.span.start : node.span.end]
    pairs = (f"{json.dumps(entry.key)}:{_compact(document, entry.node)}" for entry in node.entries)
    return f"{{{','.join(pairs)}}}"


Leaves = Counter[tuple[tuple[str, ...], str]]


def leaves(document: Document) -> Leaves:
    """Every value that is no section, by its path and as it is spelt; what is written twice counts twice."""
    return Counter(
        ((*path, entry.key), "{}" if entry.node.kind == "object" else document.text[slice(*entry.node.span)])
        for path, node in document.objects()
        for entry in node.entries
        if entry.node.kind != "object" or not entry.node.entries
    )


def comments(document: Document) -> Counter[str]:
    return Counter(
        document.text[span.start : span.end].rstrip("\r")
        for what, span in document.relaxations
        if what == "a comment"
    )
