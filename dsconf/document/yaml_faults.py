"""What is wrong with a text that is no YAML, in words for people."""

from __future__ import annotations

import re

from ruamel.yaml.error import YAMLError

from dsconf.document.node import Span

_WORDS = (
    (
        "mapping values are not allowed",
        'there is a ":" too many: a text with ": " in it needs quotes, and a key the indentation of its neighbours',
    ),
    ("could not find expected ':'", 'this key has no ":" after it'),
    ("cannot start any token", "this character can't begin a value: put the text in quotes"),
    ("found unexpected end of stream", "this text in quotes has no closing quote"),
    ("found unexpected document separator", "this text in quotes has no closing quote"),
    ("expected ',' or ']'", 'a comma or "]" is missing here'),
    ("expected ',' or '}'", 'a comma or "}" is missing here'),
    ("expected <block end>", "this line fits none above it: check the indentation, and the quotes before it"),
    ("sequence entries are not allowed", 'a list can\'t begin here: put "- " on a line of its own'),
    ("found unknown escape character", 'this is no escape of a text in double quotes: write a backslash as "\\\\"'),
    ("special characters are not allowed", "this character can't stand in YAML"),
)  # fmt: skip
TAB = "a tab: YAML has spaces between its keys and values, and before them"


def fault_of(error: YAMLError, text: str) -> tuple[str, Span]:
    """A parser's error for people, and its place."""
    context = getattr(error, "context_mark", None)
    mark = getattr(error, "problem_mark", None) or context
    at = getattr(error, "position", 0) if mark is None else mark.index
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML")
    at = max(0, min(int(at), len(text)))
    if "unexpected end" in problem and context is not None:
        at = context.index
    span = Span(at, _end(text, at))
    if "cannot start any token" in problem and text[at : at + 1] == "\t":
        return TAB, span
    message = next((words for sign, words in _WORDS if sign in problem), f"this is not YAML: {problem}")
    return message, span


def _end(text: str, at: int) -> int:
    word = re.compile(r"\w+").match(text, at)
    return word.end() if word else min(len(text), at + 1)
