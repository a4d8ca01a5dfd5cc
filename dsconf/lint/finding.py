"""What the rules found in a file: frozen, with every place already in lines and columns."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from dsconf.config.context import Guess
from dsconf.document.node import Document, Edit, Span

Severity = Literal["error", "warning", "info"]
Fails = Literal["parse", "launch", "init", "step", "save", "load"]


class Place(NamedTuple):
    """A piece of a file: 1-based lines and columns in code points, the end exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class Related(NamedTuple):
    """Another place that a finding speaks of."""

    place: Place
    message: str


class Fix(NamedTuple):
    """Edits that mend a finding."""

    safe: bool
    """Whether effective training stays unchanged."""
    description: str
    edits: tuple[Edit, ...]


class Finding(NamedTuple):
    """One finding of one rule."""

    code: str
    rule: str
    severity: Severity
    fails: Fails | None
    """When the run would break; None: it would not."""
    place: Place
    key: str
    """The dotted path of the key, "" for the whole file."""
    message: str
    help: str | None = None
    """What to write instead."""
    related: tuple[Related, ...] = ()
    url: str = ""
    """The page of the rule."""
    fix: Fix | None = None


class Result(NamedTuple):
    """What lint says of one file."""

    file: str
    findings: list[Finding]
    unusable: bool = False
    """The file could not be read; the finding says why."""
    skipped: str | None = None
    """Why the file was not judged."""
    missing_context: tuple[tuple[str, str], ...] = ()
    """Rules that could not be decided, each with the field of the context that it would have needed."""
    text: str | None = None
    """The text, for reporters that show it."""
    documents: tuple[Document, ...] = ()
    """What was judged: the file, or the configs inside of it."""
    undecided: frozenset[str] = frozenset()
    """The names of the rules whose conditions were unknown."""
    known: int = 0
    """Findings that are left out because the baseline lists them."""
    stale: int = 0
    """Findings that the baseline lists and the file no longer has."""
    fixed: int = 0
    """How many problems fixes have removed."""
    guess: Guess | None = None
    """Who seems to read the file, where that is not known."""


def printable(text: str) -> str:
    """The text on one line: what does not print (control characters, half surrogates) is written as JSON's escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def place_of(document: Document, span: Span) -> Place:
    """The place of a span of a document."""
    return Place(document.path, *document.position(span.start), *document.position(span.end))
