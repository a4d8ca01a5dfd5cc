"""Edits of entries, text before against text after."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsconf.document.edit import Change, EditError, apply
from dsconf.document.json_scanner import scan
from dsconf.document.node import Document, Edit, Spelling


def read(text: str) -> Document:
    return scan("x.json", text)


def start_of(document: Document, *path: str) -> int:
    entry = document.entry(path)
    assert entry is not None
    return entry.key_span.start


def edited(text: str, work: Callable[[Change, Document], None]) -> str:
    document = read(text)
    change = Change(document, read)
    work(change, document)
    return apply(text, change.edits())


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ('{"a": 1}', "a", "{}"),
        ('{\n  "a": 1\n}\n', "a", "{}\n"),
        ('{"a": 1, "b": 2, "c": 3}', "a", '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "b", '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "c", '{"a": 1, "b": 2}'),
        ('{"a":1,"b":2}', "b", '{"a":1}'),
        ('{ "a": 1, "b": 2 }', "b", '{ "a": 1 }'),
        ('{"a": 1, "b": 2,}', "b", '{"a": 1, }'),
        ('{\n  "a": 1,\n  "b": [\n    2\n  ],\n  "c": 3\n}', "b", '{\n  "a": 1,\n  "c": 3\n}'),
        ('{\r\n\t"a": 1,\r\n\t"b": 2\r\n}', "b", '{\r\n\t"a": 1\r\n}'),
        ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', "b", '{\n  "a": 1,\n  "c": 3\n}'),
        ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', "a", '{\n  "b": 2,\n  "c": 3\n}'),
        ('{ "a": 1\n, "b": 2\n, "c": 3\n}', "b", '{ "a": 1\n, "c": 3\n}'),
        ('{\n  "a": 1, // x\n  "b": 2 // y, z\n}', "b", '{\n  "a": 1 // x\n  // y, z\n}'),
        ('{\n  "a": 1, // x\n  "b": 2\n}', "a", '{\n  // x\n  "b": 2\n}'),
        ('{\n  // on a\n  "a": 1 /* , */,\n  "b": 2\n}', "a", '{\n  // on a\n  /* , */\n  "b": 2\n}'),
        ('{"a": 1, # {\n "b": 2}', "b", '{"a": 1 # {\n }'),
        ('\ufeff{"a": 1,\n"b": 2}', "a", '\ufeff{\n"b": 2}'),
    ],
)
def test_remove(before: str, key: str, after: str) -> None:
    assert edited(before, lambda change, document: change.remove(start_of(document, key))) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"n": 1e3}'),
        ('{"a": 1}', '{"a": 1, "n": 1e3}'),
        ('{"a":1}', '{"a":1,"n":1e3}'),
        ('{"a": 1,"b": 2}', '{"a": 1,"b": 2,"n": 1e3}'),
        ('{"a" : 1}', '{"a" : 1, "n" : 1e3}'),
        ('{"a": 1,}', '{"a": 1, "n": 1e3,}'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"n": 1e3\n}'),
        ('{\r\n "a": {}\r\n}\r\n', '{\r\n "a": {},\r\n "n": 1e3\r\n}\r\n'),
        ('{\n  "a": 1 // x\n}', '{\n  "a": 1, // x\n  "n": 1e3\n}'),
        ('{\n  "a": 1, // x\n}', '{\n  "a": 1, // x\n  "n": 1e3,\n}'),
        ('{\n  "a": 1 /* x */\n  // y\n}', '{\n  "a": 1, /* x */\n  "n": 1e3\n  // y\n}'),
        ('{"a": 1,\n "b": 2}', '{"a": 1,\n "b": 2,\n "n": 1e3}'),
    ],
)
def test_insert(before: str, after: str) -> None:
    assert (
        edited(before, lambda change, document: change.insert(document.root, "n", Spelling("1e3"))) == after
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": {}}', '{"a": {"b": {"c": true}}}'),
        ('{"a":{}}', '{"a":{"b":{"c":true}}}'),
        ('{\n "a": {}\n}', '{\n "a": {\n  "b": {\n   "c": true\n  }\n }\n}'),
        (
            '{\n\t"a": {\n\t\t"x": 1\n\t}\n}',
            '{\n\t"a": {\n\t\t"x": 1,\n\t\t"b": {\n\t\t\t"c": true\n\t\t}\n\t}\n}',
        ),
        ('{\n  "a": {"x": 1}\n}', '{\n  "a": {"x": 1, "b": {"c": true}}\n}'),
        ('{\n  "a": {\n    "x": 1\n  },\n  "y": {"z": 1}\n}',
            '{\n  "a": {\n    "x": 1,\n    "b": {"c": true}\n  },\n  "y": {"z": 1}\n}'),
    ],
)  # fmt: skip
def test_insert_a_section(before: str, after: str) -> None:
    def work(change: Change, document: Document) -> None:
        change.insert(document.root.entries[0].node, "b", {"c": True})

    assert edited(before, work) == after


def test_move_keeps_what_is_written() -> None:
    before = (
        '{\n  "a": {\n    "m": {\n      "k": 1e-08, // why\n      "l": [1,  2]\n    },\n    "z": 1\n  }\n}\n'
    )
    after = '{\n  "a": {\n    "z": 1\n  },\n  "m": {\n    "k": 1e-08, // why\n    "l": [1,  2]\n  }\n}\n'

    def work(change: Change, document: Document) -> None:
        start = start_of(document, "a", "m")
        change.insert(document.root, "m", change.written(start))
        change.remove(start)

    assert edited(before, work) == after


def test_what_moves_into_a_new_neighbour_takes_its_place() -> None:
    def work(change: Change, document: Document) -> None:
        start = start_of(document, "lr")
        change.insert(document.root, "params", {"lr": change.written(start)})
        change.remove(start)

    assert edited('{"type": "A", "lr": 1E-4}', work) == '{"type": "A", "params": {"lr": 1E-4}}'


def test_rename_and_set() -> None:
    def work(change: Change, document: Document) -> None:
        change.rename(start_of(document, "a"), 'é"')
        change.set(start_of(document, "a"), {"x": [1, None, "ü"]})

    assert edited('{"a"  :  true, "b": 1.50}', work) == '{"é\\""  :  {"x": [1, null, "ü"]}, "b": 1.50}'


@pytest.mark.parametrize(
    "work",
    [
        lambda change, document: change.rename(start_of(document, "a"), "b"),
        lambda change, document: change.insert(document.root, "a", 1),
        lambda change, document: change.insert(document.root.entries[0].node, "n", 1),
        lambda change, document: change.set(start_of(document, "a"), 1),
        lambda change, document: change.remove(2),
        lambda change, document: None,
        lambda change, document: change.set(start_of(document, "b"), Spelling("1}, {")),
    ],
    ids=["taken", "there", "no object", "no change", "no entry", "nothing", "no value"],
)
def test_refused(work: Callable[[Change, Document], None]) -> None:
    with pytest.raises(EditError):
        edited('{"a": 1, "b": 2}', work)


def test_the_check_sees_what_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the edits are: text that holds another tree, loses a comment or is less strict is refused."""
    text = '{"a": 1, /* x */ "b": 2.0, "c": [3]}'
    right = Change._removal
    for old, new in (
        ("", ""),
        ("2.0", "2.00"),
        ("/* x */", ""),
        ("/* x */", "/* y */"),
        ("[3]", "[3,]"),
        ("2.0", ""),
        ("[3]", "[4]"),
    ):
        at = text.index(old, 9)
        also = Edit(at, at + len(old), new)
        with monkeypatch.context() as patch:
            patch.setattr(Change, "_removal", lambda change, start, also=also: [*right(change, start), also])
            document = read(text)
            change = Change(document, read)
            change.remove(start_of(document, "a"))
            if old:
                with pytest.raises(EditError):
                    change.edits()
            else:
                assert change.edits()
