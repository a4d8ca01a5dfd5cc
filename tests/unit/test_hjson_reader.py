"""What DeepSpeed sees, against `hjson.loads`, and what is said of text that its writer hardly meant so."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from corpus import corpus_json, needs_corpus
from hypothesis import example, given
from hypothesis import strategies as st

from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN, Document
from dsconf.document.source import Unusable
from dsconf.document.tokens import MAX_DEPTH

hjson = importlib.import_module("hjson")

BLANK = st.sampled_from(
    ["", " ", "\n", "  ", "\r\n", "\t", " # c\n", "\n// }\n", "/* , */", "\u00a0", "\x0b"]
)
NUMBERS = st.sampled_from(
    [
        *(
            "0",
            "-0",
            "1",
            "-12",
            "1.0",
            "1e3",
            "5e8",
            "1E10",
            "9999999999.0",
            "1.5",
            "1e-8",
            "1e400",
            "-1e400",
        ),
        *("01", "1.", ".5", "+1", "1_0", "0x1", "1e", "٣", "1٣", "NaN", "-Infinity"),
    ]
)
WORDS = st.sampled_from(
    [
        *("true", "false", "null", "True", "False", "None", "auto", "cpu", "/a/b", "http://x", "a#b", "no-"),
        *("truex", "nullx", "t", "f", "n", "-"),
    ]
)
QUOTED = st.sampled_from(
    [
        *(
            '"a"',
            "'a'",
            '""',
            "''",
            '"\'"',
            "'\"'",
            "'\\''",
            '"\\u00e9"',
            '"\\u+1_2"',
            '"\\u-001"',
            '"\\ud83d\\ude00"',
        ),
        *('"\\ud83dx"', '"\\ud83d\\u12"', '"\\x"', '"\t"', '"', "'", '"\\'),
    ]
)
LINES = st.sampled_from(
    [
        "'''a'''",
        "'''\n  a\n    b\n  '''",
        "''' a\r\n b'''",
        "''''a'''",
        "'''a''''",
        "'''\n\n'''",
        "'''a\n",
        "'''",
    ]
)
SCALARS = st.one_of(NUMBERS, WORDS, QUOTED, LINES)
KEYS = st.one_of(
    QUOTED, st.sampled_from(["a", "b-c", "a b", "a\u00a0", "é", "1", "#k", "a#k", "$a", "a.b", ""])
)
ENDS = st.sampled_from([",", "\n", ",\n", " ", "", ",,", "\r", ";"])


def joined(*parts: Any) -> Any:
    return st.tuples(*parts).map("".join)


def container(inner: Any) -> Any:
    entry = joined(BLANK, KEYS, BLANK, st.sampled_from([":", ":", ":", "", "="]), BLANK, inner, BLANK, ENDS)
    element = joined(BLANK, inner, BLANK, ENDS)
    return st.one_of(
        joined(st.just("{"), st.lists(entry, max_size=3).map("".join), BLANK, st.sampled_from("}}}] ")),
        joined(st.just("["), st.lists(element, max_size=3).map("".join), BLANK, st.sampled_from("]]]} ")),
    )


VALUES = st.recursive(SCALARS, container, max_leaves=6)
ENTRIES = st.lists(joined(BLANK, KEYS, BLANK, st.just(":"), BLANK, VALUES, BLANK, ENDS), max_size=4).map(
    "".join
)
TEXTS = st.one_of(
    joined(BLANK, st.just("{"), ENTRIES, st.just("}"), BLANK),
    ENTRIES,
    joined(st.just("\ufeff"), ENTRIES),
    VALUES,
)
PIECES = st.sampled_from(
    [*"{}[],:\"'\\ \n\t\r019-+.eE/#*ab", "'''", "/*", "*/", "true", "null", "\u00a0", "1e3"]
)
CONFIG = """{
  "train_batch_size": 32, // all
  "fp16": {"enabled": true, "loss_scale": 0.0},
  zero_optimization: {
    stage: 3
    'reduce_bucket_size': 5e8,
    offload_param: {device: cpu
    }
  }
  betas: [0.9
    0.95]
  note: '''
    one
      two
    '''
}
"""


def seen_by_hjson(text: str) -> Any:
    """What `hjson.loads` makes of a text, or its exception."""
    try:
        return plain(hjson.loads(text))
    except Exception as error:
        return error


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def read(text: str) -> Document | Unusable:
    try:
        return scan("x.json", text, reader="hjson")
    except Unusable as error:
        return error


def agrees(text: str) -> None:
    result, expected = read(text), seen_by_hjson(text)
    if isinstance(result, Unusable):
        assert not isinstance(expected, dict)
        assert result.text == text
        assert result.span is not None
        assert 0 <= result.span.start <= result.span.end <= len(text)
    elif not result.placeholders:
        assert isinstance(expected, dict)
        assert repr(result.root.plain()) == repr(expected)
        for relaxation in result.relaxations:
            assert 0 <= relaxation.span.start <= relaxation.span.end <= len(text)
        for each in result.misreadings:
            assert each.text == text[slice(*each.span)]
            assert each.node is None or each.node.scalar == each.text


@given(TEXTS)
@example("a: '''x'''\n")
@example("'''a''': 1\n")
@example("{a: 1\n}}")
@example("a: 1 }")
@example("\ufeff")
@example("// only\n")
@example('{"a": 1} x')
@example("{a:\n}")
@example("a:\n  b: 1\n")
@example('{"a": 1\r"b": 2}')
@example('{"a": 1 // c\r, "b": 2}')
@example('{"a": /*/ 1}')
def test_grammar(text: str) -> None:
    agrees(text)


@given(st.data())
def test_mutated(data: st.DataObject) -> None:
    text = CONFIG
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 4)))
        text = text[:start] + data.draw(st.just("") | PIECES) + text[end:]
    agrees(text)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text(text: str) -> None:
    for framed in (text, f"{{{text}}}", f"{{\na: {text}\n}}", f'{{"a": {text}}}'):
        agrees(framed)


@needs_corpus
def test_corpus() -> None:
    files = [path.read_text(encoding="utf-8") for path in corpus_json()]
    for text in files:
        agrees(text)
    documents = [result for text in files if isinstance(result := read(text), Document)]
    assert sum(bool(document.placeholders) for document in documents) > 20
    assert sum(bool(document.relaxations) for document in documents) > 5


def test_spans() -> None:
    document = scan("x.json", CONFIG, reader="hjson")
    assert document.root.plain() == plain(hjson.loads(CONFIG))
    text = document.text

    def shown(*path: str) -> tuple[str, str]:
        entry = document.entry(path)
        assert entry is not None
        return text[slice(*entry.key_span)], text[slice(*entry.node.span)]

    assert shown("train_batch_size") == ('"train_batch_size"', "32")
    assert shown("zero_optimization", "stage") == ("stage", "3")
    assert shown("zero_optimization", "reduce_bucket_size") == ("'reduce_bucket_size'", "5e8")
    assert shown("zero_optimization", "offload_param", "device") == ("device", "cpu")
    assert shown("betas") == ("betas", "[0.9\n    0.95]")
    assert shown("note") == ("note", "'''\n    one\n      two\n    '''")
    assert text[slice(*document.root.span)] == text.strip()


def test_relaxations_have_their_places() -> None:
    document = scan("x.json", CONFIG)
    assert [(each.what, CONFIG[slice(*each.span)].partition("\n")[0]) for each in document.relaxations] == [
        ("a comment", "// all"),
        ("a key without quotes", "zero_optimization"),
        ("a key without quotes", "stage"),
        ("a missing comma", "'"),
        ("a string in single quotes", "'reduce_bucket_size'"),
        ("a key without quotes", "offload_param"),
        ("a key without quotes", "device"),
        ("text without quotes", "cpu"),
        ("a missing comma", "b"),
        ("a key without quotes", "betas"),
        ("a missing comma", "0"),
        ("a missing comma", "n"),
        ("a key without quotes", "note"),
        ("a multi-line string", "'''"),
    ]
    assert document.misreadings == []


def test_numbers_are_those_of_the_reader() -> None:
    text = '{"a": [5e8, 1.0, 1e10, 0.5], "b": 1}'
    assert repr(scan("x.json", text, reader="hjson").root.plain()) == repr(plain(hjson.loads(text)))
    for reader in ("json", "any"):
        assert repr(scan("x.json", text, reader=reader).root.plain()) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "# only\n", "  \n"])
def test_nothing_is_an_empty_object_to_hjson_alone(text: str) -> None:
    document = scan("x.json", text, reader="hjson")
    assert (document.root.plain(), hjson.loads(text)) == ({}, {})
    with pytest.raises(Unusable, match="the file holds no value"):
        scan("x.json", text)


@pytest.mark.parametrize(
    ("line", "read", "meant", "why"),
    [
        ('"a": True', "True", "true", "True is Python: JSON writes true"),
        ('"a": False,', "False,", "false", "False is Python: JSON writes false"),
        ('"a": None  # off', "None  # off", "null", "None is Python: JSON writes null"),
        ('"a": auto,', "auto,", '"auto"', "text without quotes goes on to the end of its line"),
        ('"a": cpu // host', "cpu // host", '"cpu"', "text without quotes goes on to the end of its line"),
        ('"a": .5', ".5", "0.5", ".5 is no JSON number"),
        ('"a": 01', "01", "1", "01 is no JSON number"),
        ('"a": 0x10', "0x10", "16", "0x10 is no JSON number"),
        ('"a": 1_000,', "1_000,", "1000", "1_000 is no JSON number"),
        ('"a": 1e', "1e", None, "1e is no JSON number"),
        ('"a": NaN', "NaN", None, "NaN is no JSON number"),
        ('"a": 2 "b": 3', '2 "b": 3', None, "text without quotes goes on to the end of its line"),
        ('"a": “x”', "“x”", '"x"', 'JSON puts strings in double quotes ("), not in “'),
        ('"a":\n  b: 3', "b: 3", None, "the value is missing, and HJSON takes the next line for it"),
        ("“a”: 1", "“a”", '"a"', 'JSON puts strings in double quotes ("), not in “'),
    ],
)
def test_misread(line: str, read: str, meant: str | None, why: str) -> None:
    text = f"{{\n{line}\n}}"
    (found,) = scan("x.json", text, reader="hjson").misreadings
    assert (found.text, found.meant, found.why) == (read, meant, why)
    assert text[slice(*found.span)] == read
    open_value = scan("x.json", text).root.entries[0].node.plain()
    assert open_value is UNKNOWN or found.node is None


@pytest.mark.parametrize(
    "value", ["cpu", "auto", "/local/x", "http://x/y", "a (b)", "[a]", "x: y", "don't", "a#b"]
)
def test_text_that_means_what_it_says(value: str) -> None:
    text = f'{{\n"a": b{value}\n}}'
    document = scan("x.json", text)
    assert document.root.plain() == plain(hjson.loads(text)) == {"a": f"b{value}"}
    assert document.misreadings == []
    assert [each.what for each in document.relaxations] == ["text without quotes"]


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("{a: 1", 'the file ends inside the object that begins in line 1: "}" is missing', "{"),
        ("\n{a: [1,", 'the file ends inside the array that begins in line 2: "]" is missing', "["),
        ("{a b: 1}", "a key with white space in it needs quotes", "a b"),
        ("{a, b: 1}", "found , where a key was expected", ","),
        ("{a: 1\n: 2}", 'found ":" without a key before it', ":"),
        ("a: 1\nnonsense here", 'expected a key and ":", found nonsense here', "n"),
        ("{'a' 1}", 'expected ":" after the key "a"', "1"),
        ("{a: ,}", 'expected a value for "a", found ,', ","),
        ("a:", "the file ends where a value is missing", ""),
        ("{a: [:]}", "expected a value, found :", ":"),
        ("{a: 'x\n'}", "this string has no closing quote on its line", "'x"),
        ("{a: 'x", "this string has no closing quote", "'x"),
        ("{a: 'x\\y'}", '"\\y" is no escape of JSON: write a backslash as "\\\\"', "\\y"),
        ("{a: 'x\ty'}", "a string can't hold the control character U+0009: write it as an escape", "\t"),
        ("{\na: '''x", "this string has no closing '''", "'''x"),
        ("a: '''x'''", "a string in ''' needs a line end in the file", "'''x'''"),
        ("{a: 1} /* x", "this comment has no end", "/*"),
        ("{a: 1} b", "there is more text after the end of the object", "b"),
        ('{"a": 1e400}', "1e400 is too large for a number: DeepSpeed's reader stops at it", "1e400"),
        ("{a: 1e400}", "1e400 is too large for a number: DeepSpeed's reader stops at it", "1e400"),
        ("[1\n]", "the top level is an array, not an object {...}", "["),
        ('{"a": {"b": True}}', "True is Python: JSON writes true", "True}}"),
        ('{"a": [cpu]}', "text without quotes goes on to the end of its line", "cpu]}"),
    ],
)
def test_errors(text: str, message: str, at: str) -> None:
    result = read(text)
    assert isinstance(result, Unusable)
    assert result.span is not None
    assert (result.message, text[slice(*result.span)]) == (message, at)
    assert not isinstance(seen_by_hjson(text), dict)


def test_depth() -> None:
    inside = MAX_DEPTH - 1
    deep = "{a: " + "[" * inside + "]" * inside + "}"
    assert scan("x.json", deep).root.plain() == hjson.loads(deep)
    for opening in ("[", "{a:"):
        result = read("{a: " + opening * 100_000)
        assert isinstance(result, Unusable)
        assert result.message == f"nested more than {MAX_DEPTH} levels deep"


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "[",
            "}",
            "]",
            "'",
            " ",
            "x",
            "-",
            "\\",
            "\u00a0",
            "{a:",
            "/*",
            "'''",
            "''",
            "n,",
            "1,",
            "// c\n",
            "a:1\n",
        ),
        *("''\n", "$", "__a", "${", "{{a", "{%", "{%if%}", "<a", "@a", "%(a", "A_", "__a__"),
    ],
)
@pytest.mark.parametrize("start", ["", "{a: ", "a: [1\n", "{a: '''\n", '{"a": "'])
def test_long_nonsense_takes_no_time(piece: str, start: str) -> None:
    """Quadratic work on 30,000 pieces would take half a minute."""
    read(start + piece * 30_000)
    read(start + piece * 30_000 + '"}')
