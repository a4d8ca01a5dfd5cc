"""The scanner against json.loads, and the words of its errors."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN, Document, Node
from dsconf.document.source import Unusable
from dsconf.document.template import is_open
from dsconf.document.tokens import MAX_DEPTH

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[])).filter(lambda text: not is_open(text))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)
INDENTS = st.none() | st.integers(0, 3) | st.sampled_from(["\t", " \r"])
MARKS = "{}[],:\"\\ \n\t\r0123456789+-.eE/#*'\u00a0\x00\x7fé\U0001f600\ufeff"
WORDS = ["true", "false", "null", "NaN", "True", "//", "/*", "*/", '""', '"a":', "\\u00"]
PIECES = st.sampled_from(MARKS) | st.sampled_from(WORDS)


def nodes(document: Document) -> list[Node]:
    found, stack = [], [document.root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += [entry.node for entry in node.entries] + node.elements
    return found


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def strict(text: str) -> object:
    """What `json.loads` makes of a text, without the constants that only Python knows. Raises ValueError."""
    return json.loads(text, parse_constant=refuse_constant)


def error_of(text: str) -> tuple[str, str]:
    """The message for a text, and the piece of the text that it points to."""
    with pytest.raises(Unusable) as caught:
        scan("x.json", text)
    error = caught.value
    assert error.rule == "json-syntax"
    assert error.text == text
    assert error.span is not None
    return error.message, text[error.span.start : error.span.end]


@given(OBJECTS, INDENTS, st.booleans())
def test_any_value(value: dict[str, Any], indent: int | str | None, ensure_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
    document = scan("x.json", text)
    assert document.relaxations == []
    assert same(document.root.plain(), json.loads(text))
    for node in nodes(document):
        assert same(json.loads(text[slice(*node.span)]), node.plain())
        for entry in node.entries:
            assert json.loads(text[slice(*entry.key_span)]) == entry.key
            assert text[slice(*entry.span)].startswith(text[slice(*entry.key_span)])
            assert entry.span.end == entry.node.span.end


def same(left: object, right: object) -> bool:
    """Equal, with equal types: 1, 1.0 and true are not the same."""
    return repr(left) == repr(right)


def scanned(text: str) -> Document | Unusable:
    try:
        return scan("x.json", text)
    except Unusable as error:
        return error


def agrees_with_json(text: str) -> None:
    result = scanned(text)
    try:
        expected = strict(text)
    except (ValueError, RecursionError):
        expected = None
    if isinstance(result, Document) and result.placeholders:
        return
    if isinstance(result, Document) and result.relaxations:
        assert expected is None
    elif isinstance(result, Document):
        assert isinstance(expected, dict)
        assert same(result.root.plain(), expected)
    else:
        assert not isinstance(expected, dict)
        assert result.span is not None
        assert 0 <= result.span.start <= result.span.end <= len(text)


@given(st.text() | st.lists(PIECES, max_size=30).map("".join))
@example('{"a": 1-}')
@example('{"a": 01}')
@example('{"a": 1.}')
@example('{"a": .5}')
@example('{"a": -}')
@example('{"a": 1e400}')
@example('{"a": truex}')
@example('{"a": "\\u12"}')
@example('{"a"')
@example("\u00a0{}")
@example("{}\x0b")
def test_any_text(text: str) -> None:
    agrees_with_json(text)
    agrees_with_json(f"{{{text}}}")


@given(OBJECTS, INDENTS, st.data())
def test_mutated_json(value: dict[str, Any], indent: int | str | None, data: st.DataObject) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 3)))
        text = text[:start] + data.draw(st.just("") | PIECES) + text[end:]
    agrees_with_json(text)


@given(OBJECTS, st.lists(st.sampled_from(["// x\n", "# }\n", "/* ] \n */", " "]), min_size=3, max_size=3))
def test_comments_change_nothing(value: dict[str, Any], comments: list[str]) -> None:
    before, after, last = comments
    text = json.dumps(value)
    document = scan("x.json", f"{before}{text[0]}{after}{text[1:]}{last}")
    assert same(document.root.plain(), value)
    spans = [document.text[slice(*what.span)] for what in document.relaxations]
    assert spans == [comment.rstrip("\n") for comment in comments if comment != " "]
    assert {what.what for what in document.relaxations} <= {"a comment"}


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_constants_are_numbers_to_json_load_only(word: str) -> None:
    text = f'{{"a": [{word}], "b": {word}\n}}'
    assert same(scan("x.json", text, reader="json").root.plain(), json.loads(text))
    document = scan("x.json", f'{{"a":\n{word}\n}}')
    assert document.root.plain() == {"a": UNKNOWN}
    assert [(each.text, each.why) for each in document.misreadings] == [(word, f"{word} is no JSON number")]


@given(OBJECTS, INDENTS, st.text("x\n 😀"), st.text('}",\n'))
def test_a_piece_of_a_text(value: dict[str, Any], indent: int | None, before: str, after: str) -> None:
    """Embedded in something else, with all places counted from the start of that."""
    piece = json.dumps(value, indent=indent)
    text = before + piece + after
    document = scan("x.md", text, len(before), len(before) + len(piece))
    alone = scan("x.json", piece)
    assert same(document.root.plain(), value)
    assert document.text == text
    for moved, node in zip(nodes(document), nodes(alone), strict=True):
        assert text[slice(*moved.span)] == piece[slice(*node.span)]
        assert moved.span.start == node.span.start + len(before)
        for entry, other in zip(moved.entries, node.entries, strict=True):
            assert text[slice(*entry.key_span)] == piece[slice(*other.key_span)]


def test_what_is_noted_in_a_piece_has_its_place_in_the_text() -> None:
    text = "```\n{a: $X, // c\n b: True\n}\n```"
    document = scan("x.md", text, 4, len(text) - 4)
    assert [text[slice(*span)] for span in document.placeholders] == ["$X"]
    assert [text[slice(*each.span)] for each in document.misreadings] == ["True"]
    assert [text[slice(*each.span)] for each in document.relaxations] == ["a", "// c", "b", "True"]
    assert document.position(document.misreadings[0].span.start) == (3, 5)
    with pytest.raises(Unusable) as caught:
        scan("x.md", text, 4, len(text) - 6)
    assert caught.value.text == text
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == "a"
    with pytest.raises(Unusable, match="inside the object that begins in line 2"):
        scan("x.md", text, 4, 5)


def test_relaxations_have_their_places() -> None:
    text = '\ufeff{"a": [1, 2,], // c\n "b": {"x": 1, } # d\n, /* e\n */ }'
    document = scan("x.json", text)
    assert document.root.plain() == {"a": [1, 2], "b": {"x": 1}}
    assert [(what.what, text[slice(*what.span)]) for what in document.relaxations] == [
        ("a byte order mark", "\ufeff"),
        ("a trailing comma", ","),
        ("a comment", "// c"),
        ("a trailing comma", ","),
        ("a comment", "# d"),
        ("a comment", "/* e\n */"),
        ("a trailing comma", ","),
    ]
    commas = [what.span.start for what in document.relaxations if what.what == "a trailing comma"]
    assert [text[at - 1 : at + 2] for at in commas] == ["2,]", "1, ", "\n, "]


def test_comment_signs_in_strings_are_text() -> None:
    document = scan("x.json", '{"a": "http://x # /* y */"}')
    assert document.relaxations == []
    assert document.root.plain() == {"a": "http://x # /* y */"}


def test_duplicates_are_kept() -> None:
    document = scan("x.json", '{"a": 1, "b": 2, "\\u0061": 3}')
    assert [(entry.key, entry.node.scalar) for entry in document.root.entries] == [
        ("a", 1),
        ("b", 2),
        ("a", 3),
    ]
    assert document.root.plain() == {"a": 3, "b": 2}
    assert document.root.members()["a"].node.scalar == 3
    entry = document.entry(("a",))
    assert entry is not None
    assert entry.node.scalar == 3


def test_places_and_lines() -> None:
    document = scan("x.json", '{\r\n  "é😀": 1,\n\t"b": {"c": 2}\n}')
    entry = document.entry(("b", "c"))
    assert entry is not None
    assert document.position(entry.key_span.start) == (3, 8)
    assert document.position(entry.span.end) == (3, 14)
    first = document.root.entries[0]
    assert document.position(first.node.span.start) == (2, 9)
    assert [document.line(number) for number in (1, 2, 3, 4)] == ["{", '  "é😀": 1,', '\t"b": {"c": 2}', "}"]
    assert document.position(len(document.text)) == (4, 2)
    assert document.entry(("b", "x")) is None
    assert document.entry(("b", "c", "d")) is None


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ('{"a": True}', "True is Python: JSON writes true", "True"),
        ('{"a": False}', "False is Python: JSON writes false", "False"),
        ('{"a": None}', "None is Python: JSON writes null", "None"),
        ("{'a': 1", "JSON puts strings in double quotes (\"), not in '", "'"),
        ("{“a”: 1", 'JSON puts strings in double quotes ("), not in “', "“"),
        ('{"a": 1 "b": 2}', 'expected a comma or "}", found "b"', '"b"'),
        ('{"a": [1 2]}', 'expected a comma or "]", found 2', "2"),
        ('{"a": [1}', 'expected a comma or "]", found }', "}"),
        ('{"a": 1]', 'expected a comma or "}", found ]', "]"),
        ('{"a": 1', 'the file ends inside the object that begins in line 1: a comma or "}" is missing', "{"),
        ('\n{"a": [1,', "the file ends inside the array that begins in line 2: a value is missing", "["),
        ('{"a": 1,, "b": 2}', "expected a key in double quotes, found ,", ","),
        ('{, "a": 1}', "expected a key in double quotes, found ,", ","),
        ("{1: 2", "expected a key in double quotes, found 1", "1"),
        ("{a: 1", "a is neither a JSON value nor a key in double quotes", "a"),
        ('{"a" 1}', 'expected ":" after the key "a", found 1', "1"),
        ('{"a"}', 'expected ":" after the key "a", found }', "}"),
        ('{"a": }', 'expected a value for "a", found }', "}"),
        ('{"a": ,}', 'expected a value for "a", found ,', ","),
        ('{"a": [,]}', "expected a value, found ,", ","),
        ('{"a": "x}', "this string has no closing quote on its line", '"x}'),
        ('{"a": "x\n"}', "this string has no closing quote on its line", '"x'),
        ('{"a": "C:\\data"}', '"\\d" is no escape of JSON: write a backslash as "\\\\"', "\\d"),
        ('{"a": "\\u12"}', '"\\u" is no escape of JSON: write a backslash as "\\\\"', "\\u"),
        ('{"a": "x\ty"}', "a string can't hold the control character U+0009: write it as an escape", "\t"),
        ('{"a": NaN}', "NaN is no JSON number", "NaN"),
        ('{"a": -Infinity}', "-Infinity is no JSON number", "-Infinity"),
        ('{"a": 01}', "01 is no JSON number", "01"),
        ('{"a": .5}', ".5 is no JSON number", ".5"),
        ('{"a": 1e}', "1e is no JSON number", "1e"),
        ('{"a": 0x10}', "0x10 is no JSON number", "0x10"),
        ('{"a": 1_000}', "1_000 is no JSON number", "1_000"),
        ('{"a": $1}', "$1 is neither a JSON value nor a key in double quotes", "$1"),
        ('{"a":\u00a01}', "the character U+00A0 can't stand here", "\u00a0"),
        ('{"a": \x1b[0m}', "the character U+001B can't stand here", "\x1b"),
        ("{} {}", "there is more text after the end of the object", "{"),
        ('{"a": 1}}', "there is more text after the end of the object", "}"),
        ("[1]", "the top level is an array, not an object {...}", "[1]"),
        ('"x"', "the top level is a string, not an object {...}", '"x"'),
        ("null", "the top level is null, not an object {...}", "null"),
        ("true", "the top level is a boolean, not an object {...}", "true"),
        ("// only\n", "the file holds no value", ""),
        ("{} /* x", "this comment has no end", "/*"),
        (": 1", '":" stands where a value should be', ":"),
        (
            f'{{"a": {"x" * 50}}}',
            f"{'x' * 37}... is neither a JSON value nor a key in double quotes",
            "x" * 50,
        ),
    ],
)
def test_errors(text: str, message: str, at: str) -> None:
    assert error_of(text) == (message, at)


def test_long_number() -> None:
    digits = "9" * 5000
    assert error_of(f'{{"a": {digits}}}') == ("a number of 5000 digits is too long", digits)


def test_depth() -> None:
    inside = MAX_DEPTH - 1
    document = scan("x.json", '{"a": ' + "[" * inside + "]" * inside + "}")
    assert document.root.plain() == json.loads(document.text)
    for opening in ("[", '{"a":'):
        message, _ = error_of('{"a": ' + opening * 100_000)
        assert message == f"nested more than {MAX_DEPTH} levels deep"
    message, _ = error_of('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}")
    assert message == f"nested more than {MAX_DEPTH} levels deep"


@pytest.mark.parametrize("piece", ["[", '{"a":', "/*", '"', "1", " ", "\\", "-", "x", "// c\n", '"a",', '""'])
def test_long_nonsense_takes_no_time(piece: str) -> None:
    """Quadratic work on 100,000 pieces would take minutes."""
    for start in ("", '{"a": ', '{"a": [1'):
        with pytest.raises(Unusable):
            scan("x.json", start + piece * 100_000)
