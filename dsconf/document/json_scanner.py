"""From text to a Document, as the reader of the file would read it.

DeepSpeed reads HJSON; Trainer, Accelerate and Lightning read what `json.load` takes. Both take strict JSON, in which
configs are written, so that this is tried first; placeholders of templates are passed over by either reader.
"""

from __future__ import annotations

from typing import Literal

from dsconf.document.node import Document, Entry, Misread, Reading, Relaxation, Span
from dsconf.document.source import Unusable
from dsconf.document.strict_json import read_json

Reader = Literal["json", "hjson", "any"]
"""Who reads: `json.load`, DeepSpeed, or one of them that is not known."""


def scan(path: str, text: str, start: int = 0, end: int | None = None, *, reader: Reader = "any") -> Document:
    """Parse the piece of a text from `start` up to `end`, with all places counted from the start of the text.

    "json" reads as `json.load` does, but passes over comments, trailing commas and a byte order mark (see the
    relaxations). "hjson" gives the values that DeepSpeed sees: 5e8 is an integer. "any" reads what either takes,
    numbers as `json.load` does, and leaves open what HJSON reads otherwise than it was meant.

    Raises Unusable (rule `json-syntax`), with the place, where the text can't be read, is too deep, or has no object
    at the top.
    """
    piece = text[start:end] if start or end is not None else text
    try:
        reading = _read(piece, reader, text.count("\n", 0, start) + 1)
    except Unusable as problem:
        problem.text = text
        if problem.span is not None:
            problem.span = _moved(problem.span, start)
        raise
    return Document(path, text, _shifted(reading, start) if start else reading)


def _read(text: str, reader: Reader, first_line: int) -> Reading:
    try:
        return read_json(text, first_line, constants=reader == "json", hjson_numbers=reader == "hjson")
    except Unusable as problem:
        if reader == "json":
            raise
        refused = problem
    from dsconf.document.hjson_reader import read_hjson  # few files need it

    reading = read_hjson(text, first_line, refused, numbers_as_hjson=reader == "hjson")
    if reader == "any":
        for each in reading.misreadings:
            if each.node is not None:
                each.node.kind = "unknown"
    return reading


def _shifted(reading: Reading, by: int) -> Reading:
    """The same with all places moved."""
    stack = [reading.root]
    while stack:
        node = stack.pop()
        node.span = _moved(node.span, by)
        node.entries = [Entry(each.key, _moved(each.key_span, by), each.node) for each in node.entries]
        stack += [entry.node for entry in node.entries] + node.elements
    return Reading(
        reading.root,
        [Relaxation(each.what, _moved(each.span, by)) for each in reading.relaxations],
        [_moved(span, by) for span in reading.placeholders],
        [Misread(each.node, _moved(each.span, by), *each[2:]) for each in reading.misreadings],
    )


def _moved(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by)
