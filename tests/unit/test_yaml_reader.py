"""YAML with places: the values of PyYAML, spans that point at the text, and errors for people."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pytest
from corpus import CORPUS, needs_corpus
from hypothesis import given
from hypothesis import strategies as st

from dsconf.document.node import UNKNOWN, Document, Node
from dsconf.document.source import Unusable
from dsconf.document.yaml_reader import load_yaml, scan_yaml
from dsconf.document.yaml_values import resolve


def corpus_yaml() -> list[Path]:
    """Every YAML file of the corpus, templates too; an empty list without one."""
    return sorted(path for path in Path(CORPUS).glob("*_yaml/*.y*ml*")) if CORPUS else []


def read(text: str) -> Document:
    return scan_yaml("x.yaml", text)


def places(text: str) -> list[tuple[str, str, str]]:
    """The key, its text, and the text of its value, for all entries."""
    return [
        (entry.key, text[slice(*entry.key_span)], text[slice(*entry.node.span)])
        for _, node in read(text).objects()
        for entry in node.entries
    ]


def nodes(root: Node) -> list[Node]:
    below = [entry.node for entry in root.entries] + root.elements
    return [root, *(each for node in below for each in nodes(node))]


def differs(value: object, node: Node, path: str = "") -> str | None:
    """Where a tree holds something else than PyYAML's value; None where it does not."""
    if node.kind == "unknown":
        return None
    if isinstance(value, dict):
        members = {entry.key: entry.node for entry in node.entries}
        named = {str(key) for key in value if isinstance(key, str)}
        if node.kind != "object" or not named <= members.keys() or len(members) != len(value):
            return path or "the top"
        below = ((value[key], members[key], f"{path}.{key}") for key in named)
        return next((found for each in below if (found := differs(*each))), None)
    if isinstance(value, list):
        if node.kind != "array" or len(value) != len(node.elements):
            return path
        both = enumerate(zip(value, node.elements, strict=True))
        return next(
            (found for i, (each, inner) in both if (found := differs(each, inner, f"{path}.{i}"))), None
        )
    same = type(value) is type(node.scalar) and repr(value) == repr(node.scalar)
    return None if same else f"{path}: {value!r} is read as {node.scalar!r}"


# --- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\r\nb:\r\n  c: x y\r\n", [("a", "a", "1"), ("b", "b", "c: x y"), ("c", "c", "x y")]),
        ("\ufeffa: 1\n", [("a", "a", "1")]),
        ("é: 'ü' # x\n😀: \"a\\nb\"\n", [("é", "é", "'ü'"), ("😀", "😀", '"a\\nb"')]),
        ("'a' : x\n\"b\\t\": y\n", [("a", "'a'", "x"), ("b\t", '"b\\t"', "y")]),
        ("a: |\n  x\n   y\n\nb: >-\n  z\n", [("a", "a", "|\n  x\n   y"), ("b", "b", ">-\n  z")]),
        ("a: x\n  y\nb: 1\n", [("a", "a", "x\n  y"), ("b", "b", "1")]),
        ("a: {b: 1, 'c': [2]}\n", [("a", "a", "{b: 1, 'c': [2]}"), ("b", "b", "1"), ("c", "'c'", "[2]")]),
        ("a:\n- 1\n- 2 # x\n\nb: 1", [("a", "a", "- 1\n- 2"), ("b", "b", "1")]),
        ("a:\n  - b: 1\n    c:\n", [("a", "a", "- b: 1\n    c:"), ("b", "b", "1"), ("c", "c", "")]),
        ("a: # x\n\nb:\n", [("a", "a", ""), ("b", "b", "")]),
        ("1: x\ntrue: y\n~: z\n", [("1", "1", "x"), ("true", "true", "y"), ("~", "~", "z")]),
        ("? a\n: 1\n", [("a", "a", "1")]),
        ("a: &x 5\nb: *x\n", [("a", "a", "5"), ("b", "b", "*x")]),
        ("a: !!str 5\nb: !t &x c\n", [("a", "a", "5"), ("b", "b", "c")]),
        ("a: &x\n  k: 1\n", [("a", "a", "k: 1"), ("k", "k", "1")]),
        ("a: &x # c\n  k\n", [("a", "a", "k")]),
        ("---\na: 1\n...\n", [("a", "a", "1")]),
        ("{a: 1,\n b: }", [("a", "a", "1"), ("b", "b", "")]),
        ("{a:, b:}", [("a", "a", ""), ("b", "b", "")]),
        ("l: [a: 1 , {b: 2}]\n", [("l", "l", "[a: 1 , {b: 2}]"), ("a", "a", "1"), ("b", "b", "2")]),
        ("a: 1\na: 2\n", [("a", "a", "1"), ("a", "a", "2")]),
    ],
)  # fmt: skip
def test_places(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert places(text) == expected


def test_an_alias_has_its_place_and_the_value_of_its_anchor() -> None:
    document = read("a: &x {k: 1}\nb: *x\nc: [*x]\n")
    assert document.root.plain() == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}]}
    assert document.root.entries[1].node.span == (16, 18)
    assert read("a: &x b\n*x : 1\n").root.plain() == {"a": "b", "b": 1}


@pytest.mark.parametrize(
    ("text", "value", "places"),
    [
        ("<<: *x", {"k": 1, "l": 2}, ["k@7", "l@13"]),
        ("k: 5\n  <<: *x", {"l": 2, "k": 5}, ["l@13", "k@24"]),
        ("<<: [*x, {m: 3}]", {"k": 1, "l": 2, "m": 3}, ["k@7", "l@13", "m@34"]),
        ("<<: {m: 3}\n  k: 1", {"m": 3, "k": 1}, ["m@29", "k@37"]),
        ("<<: {k: 3}\n  <<: *x", {"k": UNKNOWN, "l": 2}, ["k@7", "l@13"]),
        ("\"<<\": 1", {"<<": 1}, ["<<@24"]),
    ],
)  # fmt: skip
def test_merged_keys(text: str, value: object, places: list[str]) -> None:
    """They stand where they are written, and a mapping's own keys win; among themselves that is open."""
    entry = read(f"a: &x {{k: 1, l: 2}}\nb:\n  {text}\n").entry(("b",))
    assert entry is not None
    assert entry.node.plain() == value
    assert [f"{each.key}@{each.key_span.start}" for each in entry.node.entries] == places


def test_what_is_merged_may_be_open() -> None:
    assert read("<<: '${X}'\na: 1\n").root.open
    assert not read("a: 1\n").root.open


def test_a_pair_in_brackets_is_a_mapping() -> None:
    pair, inner = read("l: [a: 1 , {b: 2}]\n").root.entries[0].node.elements
    assert (pair.kind, pair.span, inner.span) == ("object", (4, 8), (11, 17))


# --- comments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# a\nb: 1 # c\n", ["# a", "# c"]),
        ("a: 'x # y'\nb: \"z # 'w\" # c\n", ["# c"]),
        ("a: x#y # c", ["# c"]),
        ("a: | # c\n  # no\n  x\n# d\nb: >+1 #e\n  # no\n", ["# c", "# d", "#e"]),
        ("a: [1, #c\n  2] #d\n", ["#c", "#d"]),
        ("a: &x#y\n", None),
        ("a: !t#y 1\n", None),
        ("a: {b: 1} # c\r\n# d\r\n", ["# c", "# d"]),
        ("a:\n  # c\n  - 1\n  #d\n", ["# c", "#d"]),
        ("a: 'it''s # x'\n", []),
        ("# c\n'a': # d\n  'x'\n", ["# c", "# d"]),
        ("%YAML 1.1 # c\n---\na: 1\n", ["# c"]),
    ],
)
def test_comments(text: str, found: list[str] | None) -> None:
    if found is None:
        with pytest.raises(Unusable):
            read(text)
        return
    document = read(text)
    assert [text[slice(*span)] for _, span in document.relaxations] == found
    assert {what for what, _ in document.relaxations} <= {"a comment"}


# --- what can't be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("a: b: c\n", 'there is a ":" too many', ":"),
        ("a: 1\n  b: 2\n", 'there is a ":" too many', ":"),
        ("a:\n  b: 1\n c: 2\n", "this line fits none above it", "c"),
        ("a: 'x\nb: 1\n", "no closing quote", "'"),
        ("a: \"x\nb: 1\n", "no closing quote", '"'),
        ('a: "\\d"\n', "no escape", "d"),
        ("a: [1, 2\nb: 1\n", "a comma or", ":"),
        ("a: {b: 1\n", "a comma or", ""),
        ("a: @x\n", "put the text in quotes", "@"),
        ("a:\t1\n", "a tab", "\t"),
        ("a: 1\t# c\n", "a tab", "\t"),
        ("\ta: 1\n", "a tab", "\t"),
        ("a: x\ty\n", "a tab", "\t"),
        ("a: *x\n", "stands for nothing", "*x"),
        ("a: &x 1\nb: &x [2]\n", "before two values", None),
        ("a: &x.y [1]\n", "letters, digits", "&"),
        ("a: *x.y\n", "letters, digits", "*"),
        ("a: &x [*x]\n", "within the value", "*x"),
        ("a: 1\n---\nb: 1\n", "a second document", "---"),
        ("- a\n", "an array", "- a"),
        ("5\n", "a number", "5"),
        ("a:1\n", "no space after", "a:1"),
        ("# c\n", "no keys", ""),
        ("---\n", "no keys", ""),
        ("? [a]\n: 1\n", "a key that is no text", "["),
        ("<<: 1\n", "merges mappings", "1"),
        ("a: 2001-13-01\n", "no such day", "2001-13-01"),
        ("a: !!int x\n", "can't stand before x", "x"),
        ("a: 0x_\n", "and is none", "0x_"),
        (f"a: {'9' * 5000}\n", "5000 digits is too long", "9" * 5000),
        ("a: \x07\n", "can't stand in YAML", "\x07"),
        ("a: " + "[" * 201, "levels deep", "["),
        ("a: &a " + "[" * 150 + "]" * 150 + "\nb: " + "[" * 60 + "*a" + "]" * 60, "levels deep", "*a"),
        ("a: &a [1]\n" + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}' if i else '*a'] * 10)}]\n"
            for i in range(9)), "more than 100000 values", None),
        ("a: 1\n" * (1 << 18), "too large", None),
    ],
)  # fmt: skip
def test_unusable(text: str, message: str, at: str | None) -> None:
    with pytest.raises(Unusable, match=message) as caught:
        read(text)
    problem = caught.value
    assert problem.rule == "yaml-syntax"
    assert problem.text == text
    if at is not None:
        assert problem.span is not None
        assert text[slice(*problem.span)] == at


def unusable(text: str) -> Unusable | None:
    try:
        read(text)
    except Unusable as problem:
        return problem
    return None


@given(st.text() | st.text("ab:-?[]{},&*!|>'\"%@#<~ \n\t01").map(lambda text: f"k: {text}"))
def test_any_text_is_read_or_unusable(text: str) -> None:
    problem = unusable(text)
    spans = [node.span for node in nodes(read(text).root)] if problem is None else [problem.span]
    for span in spans:
        assert span is None or 0 <= span.start <= span.end <= len(text) + 1


# --- templates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: {{ x }}\nb: 1\n", {"a": UNKNOWN, "b": 1}),
        ("a: '{{ x }}'\nb: ${X}\nc: $X\n", {"a": UNKNOWN, "b": UNKNOWN, "c": UNKNOWN}),
        ("a: out/{{ x }}-{{ y }}\nb: {{ z }}x\n", {"a": UNKNOWN, "b": UNKNOWN}),
        ("{{ k }}: 1\nb: [{{ x }}, 2]\n", {"{{ k }}": 1, "b": UNKNOWN}),
        ("a: 1\n{% if x %}\nb: 2\n{% else %}\nb: 3\n{% endif %}\nc: 4\n", {"a": 1, "b": UNKNOWN, "c": 4}),
        ("a: 1\n{% if x %}\nb: 2\n", {"a": 1, "b": UNKNOWN}),
        ("a: {b: {c: 1}}\n", {"a": {"b": {"c": 1}}}),
        ("a: /data/$X/y\n", {"a": "/data/$X/y"}),
        ("a: LOCAL_MACHINE\n", {"a": "LOCAL_MACHINE"}),
    ],
)
def test_templates(text: str, value: object) -> None:
    assert read(text).root.plain() == value


@pytest.mark.parametrize("text", ["a: {% if x\n", "a: {{ x }} {% if x\nb: c: d\n", "a: {{ x }}: 1: 2\n"])
def test_what_is_no_template_either(text: str) -> None:
    with pytest.raises(Unusable):
        read(text)


def test_placeholders_are_noted() -> None:
    text = "a: {{ x }}\nb: '${Y}'\n{% if x %}\n{% endif %}\n"
    assert [text[slice(*span)] for span in read("a: 1\n").placeholders] == []
    assert {text[slice(*span)] for span in read(text).placeholders} >= {"{{ x }}", "'${Y}'", "{% if x %}"}


@pytest.mark.parametrize(
    "text", ["!t {b: 1}", "!!set {b}", "!!omap [b: 1]", "!t [1]", "!t b", "'x\u2028y'", "2001-01-01"]
)
def test_what_json_has_no_value_for_is_open(text: str) -> None:
    node = read(f"a: {text}\n").root.entries[0].node
    assert (node.kind, node.entries, node.elements, node.scalar) == ("unknown", [], [], None)


def test_an_exclamation_mark_alone_is_no_tag() -> None:
    assert read("a: ! 5\nb: ! 'x'\n").root.plain() == {"a": 5, "b": "x"}


def test_load_yaml() -> None:
    assert load_yaml("a: [1, no]\n") == {"a": [1, False]}
    with pytest.raises(ValueError, match="line 2, column 5: there is"):
        load_yaml("a: 1\nb: c: d\n")


# --- PyYAML ------------------------------------------------------------------------------------------------------

SIGNS = ["", "-", "+", "."]
BODIES = [
    "0", "7", "12", "012", "09", "0b101", "0b2", "0x1F", "0xg", "0o17", "1_000", "0_7", "_1",
    "1__2", "1e5", "5e8", "1e-5",
    "1.", "1.5", "1.e5", "1.0e5", "1.0e+5", "1.5E-3", ".5", ".5e3", "5.5e+3", "1:30", "1:60",
    "12:30:45", "1:30.5",
    "01:30", "inf", "Inf", "INF", "nan", "NaN", "iNF", "true", "TRUE", "tRUE", "yes", "No", "oN",
    "on", "off", "y", "n",
    "null", "Null", "nULL", "~", "2001-01-01", "2001-1-1", "2001-01-01T10:00:00Z",
    "2001-1-1 1:00:00 +1", "2001-01-01 1",
    "=", "<<", "x", "1x", "1 2", "a.b", "1.2.3", "1,2", "auto", "1e", "e5", "0.0", "00", "0x", "0b",
    "1_", "1_0.5_0",
]  # fmt: skip


@pytest.mark.oracle
def test_every_scalar_is_what_pyyaml_makes_of_it() -> None:
    yaml = pytest.importorskip("yaml")

    texts = [
        sign + body + tail for sign, body, tail in itertools.product(SIGNS, BODIES, ["", "0", "_", ".", "-"])
    ]
    checked = 0
    for text in texts:
        try:
            value = yaml.safe_load(f"k: {text}\n")["k"]
        except (yaml.YAMLError, ValueError):
            value = UNKNOWN
        try:
            kind, found = resolve(text)
        except ValueError:
            assert value is UNKNOWN, text
            continue
        if kind == "unknown":
            assert value is UNKNOWN or isinstance(value, datetime.date), text
        else:
            assert value is not UNKNOWN or text.startswith(("-", "?")), text
            assert value is UNKNOWN or (type(value) is type(found) and repr(value) == repr(found)), text
            checked += 1
    assert checked > 1000


@pytest.mark.oracle
@pytest.mark.parametrize(
    "text",
    [
        "{a:1}", "{a: 1,b:2}", '{"a":1}', "[a:b]", "[http://x, c]", '["a":1]', "[a: 1, b: 2]",
        "{a, b}", "{a:}", "[-1, -]",
        "!!str no", "!!int '5'", "!!float 1", "!!bool 'yes'",
        "!!null x", "! 5", "!!seq [1]", "!!map {a: 1}", '"\\x41\\u00e9\\U0001F600\\/\\_"',
        "'it''s'", "|\n  x\n\n  y\n", "|-\n  x\n", "|+\n  x\n\n", ">\n  x\n  y\n\n  z\n",
        "|2\n   x\n", "'a\n\n  b'", "a\n  b\n\n  c",
        "\n  - 1\n  -\n  - a: 1\n    b: 2\n", "\n- - 1\n  - 2\n", "{<<: {a: 1}, b: 2}",
        "{a: 1, <<: {a: 2}}", "\n  ? a\n  : 1\n  ? b\n",
        "&x [1]\nl: *x", "a#b", "-a", ":a", "?a", "'a'#c", "{a: 1, a: 2}",
    ],
)  # fmt: skip
def test_values_are_those_of_pyyaml(text: str) -> None:
    yaml = pytest.importorskip("yaml")

    whole = f"k: {text}\nz: 1\n"
    assert differs(yaml.safe_load(whole), read(whole).root) is None


@pytest.mark.oracle
@needs_corpus
def test_the_corpus_is_what_pyyaml_makes_of_it() -> None:
    yaml = pytest.importorskip("yaml")

    paths = corpus_yaml()
    assert len(paths) > 100
    for path in paths:
        text = path.read_bytes().decode()
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            assert "{%" in text, path.name
            continue
        assert differs(value, read(text).root) is None, path.name


@needs_corpus
def test_the_places_of_the_corpus() -> None:
    """The text in each span, read alone, is the value again; every key is its text."""
    count = 0
    for path in corpus_yaml():
        text = path.read_bytes().decode()
        document = read(text)
        for _, node in document.objects():
            for entry in node.entries:
                key = text[slice(*entry.key_span)]
                assert key.strip("'\"") == entry.key.strip("'\""), path.name
                span = entry.node.span
                if entry.node.kind in ("string", "number", "boolean") and "\n" not in text[slice(*span)]:
                    again = read(f"k: {text[slice(*span)]}\n").root.entries[0].node
                    assert (again.kind, again.scalar) == (entry.node.kind, entry.node.scalar), path.name
                    count += 1
    assert count > 4000
