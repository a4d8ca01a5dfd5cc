"""Edits of YAML, text before against text after."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, needs_corpus
from hypothesis import given
from hypothesis import strategies as st

from dsconf.document.edit import EditError, apply
from dsconf.document.node import Document, Node, Spelling
from dsconf.document.yaml_edit import YamlChange
from dsconf.document.yaml_reader import scan_yaml
from dsconf.document.yaml_style import flow

Work = Callable[[YamlChange, Document], None]


def read(text: str) -> Document:
    return scan_yaml("x.yaml", text)


def start_of(document: Document, *path: str) -> int:
    entry = document.entry(path)
    assert entry is not None
    return entry.key_span.start


def edited(text: str, work: Work) -> str:
    document = read(text)
    change = YamlChange(document, read)
    work(change, document)
    return apply(text, change.edits())


def removing(*paths: str) -> Work:
    def work(change: YamlChange, document: Document) -> None:
        for path in paths:
            change.remove(start_of(document, *path.split(".")))

    return work


def inserting(holder: str, name: str, value: object) -> Work:
    def work(change: YamlChange, document: Document) -> None:
        entry = document.entry(tuple(holder.split("."))) if holder else None
        change.insert(entry.node if entry else document.root, name, value)

    return work


def setting(path: str, value: object) -> Work:
    return lambda change, document: change.set(start_of(document, *path.split(".")), value)


def renaming(path: str, name: str) -> Work:
    return lambda change, document: change.rename(start_of(document, *path.split(".")), name)


def moving(path: str, holder: str, name: str) -> Work:
    def work(change: YamlChange, document: Document) -> None:
        start = start_of(document, *path.split("."))
        inserting(holder, name, change.written(start))(change, document)
        change.remove(start)

    return work


# --- taking away -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("a: 1\nb: 2\n", "a", "b: 2\n"),
        ("a: 1\nb: 2\n", "b", "a: 1\n"),
        ("a: 1\nb: 2", "b", "a: 1\n"),
        ("a: 1\r\nb: 2\r\nc: 3\r\n", "b", "a: 1\r\nc: 3\r\n"),
        ("a: 1\n", "a", "{}\n"),
        ("a: 1\nb:\n  c: 2\n  d:\n  - 1\n  - 2\n\ne: 3\n", "b", "a: 1\n\ne: 3\n"),
        ("a:\n  b: 1\nc: 2\n", "a.b", "a: {}\nc: 2\n"),
        ("a:\n  b: 1 # why\nc: 2\n", "a.b", "a: {} # why\nc: 2\n"),
        ("a: 1\nb: 2  # of b\nc: 3\n", "b", "a: 1\n# of b\nc: 3\n"),
        ("# on a\na: 1\nb: 2\n", "a", "# on a\nb: 2\n"),
        ("a: |\n  x\n  y\n\nb: 2\n", "a", "\nb: 2\n"),
        ("a: 'x\n\n  y'\nb: 2\n", "a", "b: 2\n"),
        ("a:\nb: 2\n", "a", "b: 2\n"),
        ("a: {b: 1, c: 2}\n", "a.b", "a: {c: 2}\n"),
        ("a: {b: 1, c: 2}\n", "a.c", "a: {b: 1}\n"),
        ("a: {b: 1}\n", "a.b", "a: {}\n"),
        ("a: {\n  b: 1, # x\n  c: 2\n}\n", "a.b", "a: {\n  # x\n  c: 2\n}\n"),
        ('{"a": 1, "b": 2}', "b", '{"a": 1}'),
        ("\ufeffa: 1\nb: 2\n", "b", "\ufeffa: 1\n"),
        ("---\na: 1\nb: 2\n...\n", "b", "---\na: 1\n...\n"),
        ("a: &x\n  k: 1\nb: *x\nc: 1\n", "b", "a: &x\n  k: 1\nc: 1\n"),
        ("a: 1\nb: &x 5\n", "b", "a: 1\n"),
        ("a: 1\na: 2\n", "a", "a: 1\n"),
    ],
)
def test_remove(before: str, key: str, after: str) -> None:
    assert edited(before, removing(key)) == after


def test_remove_in_a_list() -> None:
    def first(change: YamlChange, document: Document) -> None:
        change.remove(document.root.entries[0].node.elements[0].entries[0].key_span.start)

    assert edited("l:\n- a: 1\n  b: 2\n- c: 3\n", first) == "l:\n- b: 2\n- c: 3\n"
    assert edited("l:\n- a: 1\n- c: 3\n", first) == "l:\n- {}\n- c: 3\n"


def test_remove_all() -> None:
    assert edited("a:\n  b: 1\n  c: 2\nd: 3\n", removing("a.b", "a.c")) == "a: {}\nd: 3\n"
    assert edited("a: 1\nb: 2\nc: 3\n", removing("a", "c")) == "b: 2\n"


# --- adding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "holder", "after"),
    [
        ("a: 1\n", "", "a: 1\nn: 5\n"),
        ("a: 1", "", "a: 1\nn: 5"),
        ("a: 1\r\n", "", "a: 1\r\nn: 5\r\n"),
        ("a: 1  # why\n\n# end\n", "", "a: 1  # why\nn: 5\n\n# end\n"),
        ("a:\n    b: 1\nc: 2\n", "a", "a:\n    b: 1\n    n: 5\nc: 2\n"),
        ("a:\n  b:\n  - 1\nc: 2\n", "a", "a:\n  b:\n  - 1\n  n: 5\nc: 2\n"),
        ("a:\n  b: |\n    x\n\nc: 2\n", "a", "a:\n  b: |\n    x\n  n: 5\n\nc: 2\n"),
        ("a: {}\n", "a", "a:\n  n: 5\n"),
        ("x:\n    y: 1\na: {} # c\n", "a", "x:\n    y: 1\na:\n    n: 5 # c\n"),
        ("a: {b: 1}\n", "a", "a: {b: 1, n: 5}\n"),
        ("a: {b: x}\n", "a", "a: {b: x, n: 5}\n"),
        ("a: {b: {}}\n", "a.b", "a: {b: {n: 5}}\n"),
        ("a: {\n  b: 1\n}\n", "a", "a: {\n  b: 1,\n  n: 5\n}\n"),
        ("{}\n", "", "n: 5\n"),
        ("---\na: 1\n...\n", "", "---\na: 1\nn: 5\n...\n"),
        ("'a': 1\n", "", "'a': 1\n'n': 5\n"),
    ],
)
def test_insert(before: str, holder: str, after: str) -> None:
    assert edited(before, inserting(holder, "n", 5)) == after


def test_insert_in_a_list() -> None:
    def work(change: YamlChange, document: Document) -> None:
        change.insert(document.root.entries[0].node.elements[0], "n", {"x": 1})

    assert edited("l:\n  - a: 1\n  - b: 2\n", work) == "l:\n  - a: 1\n    n:\n      x: 1\n  - b: 2\n"
    assert edited("l:\n  - {}\n", work) == "l:\n  - {n: {x: 1}}\n"


def test_what_is_added_where_two_sections_end_goes_to_each() -> None:
    def work(change: YamlChange, document: Document) -> None:
        change.insert(document.root, "m", 2)
        change.insert(document.root.entries[0].node, "n", 1)

    assert edited("a:\n  x: 1\n", work) == "a:\n  x: 1\n  n: 1\nm: 2\n"


def test_insert_sections() -> None:
    value = {"b": {"c": True}, "l": [1, "no"], "e": {}}
    added = 'n:\n   b:\n      c: true\n   l: [1, "no"]\n   e: {}\n'
    assert edited("a:\n   x: 1\n", inserting("", "n", value)) == f"a:\n   x: 1\n{added}"
    assert edited("a: {x: 1}\n", inserting("a", "n", value)) == (
        'a: {x: 1, n: {b: {c: true}, l: [1, "no"], e: {}}}\n'
    )


def test_several_at_once() -> None:
    def work(change: YamlChange, document: Document) -> None:
        change.rename(start_of(document, "a"), "z")
        change.set(start_of(document, "b"), [1])
        change.remove(start_of(document, "c"))
        change.insert(document.root, "n", None)
        change.insert(document.root, "m", 1)

    assert edited("a: 1\nb: 2 # x\nc: 3\nd: 4\n", work) == "z: 1\nb: [1] # x\nn: null\nm: 1\nd: 4\n"


# --- other values and names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("a: 1\n", 2, "a: 2\n"),
        ("a:   1  # why\n", True, "a:   true  # why\n"),
        ("a:\nb: 1\n", 2, "a: 2\nb: 1\n"),
        ("a: # why\nb: 1\n", 2, "a: 2 # why\nb: 1\n"),
        ("a: 'x'\n", "it's", "a: 'it''s'\n"),
        ('a: "x"\n', "y", 'a: "y"\n'),
        ("a: 'x'\n", "y\nz", 'a: "y\\nz"\n'),
        ("a: x\n", "no", 'a: "no"\n'),
        ("a: x\n", "FULL_SHARD", "a: FULL_SHARD\n"),
        ("a: x\n", "1e5", "a: 1e5\n"),
        ("a: x\n", 1e5, "a: 100000.0\n"),
        ("a: x\n", 1e-5, "a: 1.0e-05\n"),
        ("a: x\n", Spelling("1e-05"), "a: 1.0e-05\n"),
        ("a: x\n", Spelling("1.50"), "a: 1.50\n"),
        ("a: x\n", None, "a: null\n"),
        ("a:\n  b: 1\n  c: 2\nd: 1\n", 5, "a: 5\nd: 1\n"),
        ("a:\n- 1\n- 2\nd: 1\n", [3], "a: [3]\nd: 1\n"),
        ("a: 1 # why\nd: 1\n", {"b": 1}, "a:\n  b: 1 # why\nd: 1\n"),
        ("a: {b: 1}\n", {"c": {"d": "x"}}, "a:\n  c:\n    d: x\n"),
        ("a:\n  # c\n  1\n", 2, "a:\n  # c\n  2\n"),
        ("a: x\n  y\n", "z", "a: z\n"),
    ],
)
def test_set(before: str, value: object, after: str) -> None:
    assert edited(before, setting("a", value)) == after


def test_set_in_braces() -> None:
    assert edited("a: {b: 1, c: 2}\n", setting("a.b", {"x": ["off"]})) == 'a: {b: {x: ["off"]}, c: 2}\n'
    assert edited("a: {b: , c: 2}\n", setting("a.b", 5)) == "a: {b: 5, c: 2}\n"


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ("a: 1\n", "b", "b: 1\n"),
        ("'a'  : 1\n", "b", "'b'  : 1\n"),
        ("a:\n  x: 1\n", "on", '"on":\n  x: 1\n'),
        ("{a: 1}\n", "b c", "{b c: 1}\n"),
        ("a: &x 1\nc: *x\n", "b", "b: &x 1\nc: *x\n"),
    ],
)
def test_rename(before: str, name: str, after: str) -> None:
    assert edited(before, renaming("a", name)) == after


@pytest.mark.parametrize(
    ("before", "work", "after"),
    [
        ("s:\n  a: 1\n  b: 2\n", moving("s.a", "", "a"), "s:\n  b: 2\na: 1\n"),
        ("s:\n  a: 1e-5 # w\nb: 2\n", moving("s.a", "", "a"), "s: {} # w\nb: 2\na: 1e-5\n"),
        ("s:\n  t:\n    x: 1 # w\n    y: [1,  2]\n  b: 2\n", moving("s.t", "", "t"),
            "s:\n  b: 2\nt:\n  x: 1 # w\n  y: [1,  2]\n"),
        ("t:\n- 1\n- x: 1\n  y: 2\ns:\n  b: 2\n", moving("t", "s", "t"),
            "s:\n  b: 2\n  t:\n    - 1\n    - x: 1\n      y: 2\n"),
        ("s: {a: 'x', b: 1}\n", moving("s.a", "", "a"), "s: {b: 1}\na: 'x'\n"),
        ("a: 1\nb: 2\n", moving("a", "", "z"), "z: 1\nb: 2\n"),
    ],
)  # fmt: skip
def test_move(before: str, work: Work, after: str) -> None:
    assert edited(before, work) == after


# --- what is not done --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("a: 1\nb: 2\n", renaming("a", "b")),
        ("a: 1\n", inserting("", "a", 1)),
        ("a: 1\n", inserting("a", "b", 1)),
        ("a: 1\n", setting("a", 1)),
        ("a: 1\n", lambda change, document: None),
        ("a: 1\n", lambda change, document: change.remove(1)),
        ("a: 1\n", setting("a", Spelling("x"))),
        ("a: 1\n", setting("a", object())),
        ("a: 1\n", setting("a", "${X}")),
        ("a: &x {k: 1}\nb: *x\n", removing("a.k")),
        ("a: &x {k: 1}\nb: *x\n", removing("b.k")),
        ("a: &x {k: 1}\nb: *x\n", inserting("b", "n", 1)),
        ("a: &x {k: 1}\nb: *x\n", inserting("a", "n", 1)),
        ("a: &x {k: 1}\nb: *x\n", removing("a")),
        ("a: &x {k: 1}\nb: *x\n", setting("a", 1)),
        ("a: &x {k: 1}\nb: *x\n", setting("b", 1)),
        ("a: &x {k: 1}\nb: *x\nc: 1\n", moving("b", "", "d")),
        ("a: &x {k: 1}\nb:\n  <<: *x\n  c: 1\n", removing("b.k")),
        ("a: &x {k: 1}\nb:\n  <<: *x\n  c: 1\n", inserting("b", "n", 1)),
        ("a: !!str 1\n", setting("a", 2)),
        ("a: |\n  x\n", setting("a", "y")),
        ("a: |\n  x\nb: {}\n", moving("a", "b", "n")),
        ("a: 'x\n  y'\nb: {}\n", moving("a", "b", "n")),
        ("a:\n  k: 1\nb: {c: 1}\n", moving("a", "b", "n")),
        ("? a\n: 1\nb: 1\n", removing("a")),
        ("? a\n: 1\nb: 1\n", renaming("a", "c")),
        ("&x a: 1\nb: *x\n", renaming("a", "c")),
        ("a: &x b\n*x : 1\n", renaming("b", "c")),
        ("a:\n  # of b\n  b: 1\nc: 1\n", removing("a")),
        ("a:\n  # of b\n  b: 1\nc: 1\n", setting("a", 1)),
        ("b: 1\na: |+\n  x\n\n", inserting("", "n", 1)),
    ],
)  # fmt: skip
def test_refused(text: str, work: Work) -> None:
    with pytest.raises(EditError):
        edited(text, work)


def test_a_section_is_edited_as_a_document_of_its_own() -> None:
    from dsconf.document.node import Reading

    def section(text: str) -> Document:
        whole = read(text)
        entry = whole.entry(("s",))
        assert entry is not None
        reading = Reading(entry.node, whole.relaxations, whole.placeholders, [])
        return Document("x.yaml", text, reading, language="yaml")

    text = "s:\n  a: 1\nb: 2 # c\n"
    document = section(text)
    change = YamlChange(document, section)
    change.insert(document.root, "n", {"x": 1})
    change.remove(start_of(document, "a"))
    assert apply(text, change.edits()) == "s:\n  n:\n    x: 1\nb: 2 # c\n"
    change = YamlChange(document, section)
    change.remove(start_of(document, "a"))
    assert apply(text, change.edits()) == "s: {}\nb: 2 # c\n"


def test_written_twice() -> None:
    change = YamlChange(read("a: 1\nb: 2\na: 3\n"), read)
    assert [change.written_twice(start) for start in (0, 5, 10)] == [True, False, True]


# --- any value, any file -----------------------------------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from(["no", "1:30", "0x1", "2001-01-01", "1e5", "~", "<<", "- a", "a: b", "a #b", "'", "\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def same(left: object, right: object) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.oracle
@given(VALUES)
def test_pyyaml_reads_what_was_set(value: Any) -> None:
    yaml = pytest.importorskip("yaml")

    for text in ("a: x\nb: 1\n", "{a: x, b: 1}\n"):
        try:
            after = edited(text, setting("a", value))
        except EditError:
            with pytest.raises(ValueError, match=r"placeholder|UTF-8"):
                flow(value)
            return
        assert same(yaml.safe_load(after), {"a": value, "b": 1})


def entries(document: Document) -> list[tuple[Node, int, str]]:
    return [
        (node, entry.key_span.start, entry.key) for _, node in document.objects() for entry in node.entries
    ]


WORKS: list[Callable[[YamlChange, Node, int, str], None]] = [
    lambda change, holder, start, key: change.remove(start),
    lambda change, holder, start, key: change.rename(start, f"{key}_"),
    lambda change, holder, start, key: change.insert(holder, "new_key", {"x": 1}),
    lambda change, holder, start, key: change.set(start, {"x": [1, "no"]}),
]


@needs_corpus
def test_each_entry_of_the_corpus_goes_alone() -> None:
    """Removing, renaming, setting, and adding beside it changes nothing else, and is seldom refused."""
    done = refused = 0
    for path in sorted(Path(CORPUS or "").glob("accelerate_yaml/*.y*ml"))[::8]:
        text = path.read_bytes().decode()
        document = read(text)
        for (holder, start, key), work in itertools.product(entries(document), WORKS):
            change = YamlChange(document, read)
            try:
                work(change, holder, start, key)
                change.edits()
                done += 1
            except EditError:
                refused += 1
    assert done > 50 * refused
