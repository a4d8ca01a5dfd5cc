"""Every fix that is offered: it mends what it says, touches nothing else, and keeps the layout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from corpus import corpus_json, needs_corpus
from examples import EXAMPLES, ROOT, Example
from layouts import comments, layouts, leaves
from oracle.mutants import mutants

from dsconf.cli.circumstances import take_context
from dsconf.cli.lint import command
from dsconf.config.context import Context
from dsconf.document.edit import apply
from dsconf.document.json_scanner import scan
from dsconf.document.node import Document
from dsconf.document.source import Unusable
from dsconf.document.yaml_reader import scan_yaml
from dsconf.lint.engine import lint_text
from dsconf.lint.finding import Finding, Related, Result
from dsconf.lint.index import load_rules
from dsconf.lint.mend import mend

RULES = load_rules()
BAD = [
    example
    for example in EXAMPLES
    if example.section == "Bad"
    and example.page.stem[:5] not in ("DS100", "DS101", "DS119")
    and example.language != "python"
]
FIXTURES = sorted((ROOT / "fixtures").glob("*/*.json"))


def context_of(example: Example, folder: Path) -> Context:
    args = example.write(folder / "x.json")
    return take_context(command.make_context("lint", ["x.json", *args]).params)


def lint(text: str, context: Context, path: str = "x.json") -> Result:
    return lint_text(path, text, RULES, context)


def read(text: str, path: str) -> Document:
    return scan_yaml(path, text) if path.endswith(".yaml") else scan(path, text)


def names(result: Result, document: Document) -> Counter[tuple[str, ...]]:
    """The findings by their code and the entry that they mark, as it is spelt."""
    return Counter((finding.code, *written_path(document, finding)) for finding in result.findings)


def errors(result: Result) -> int:
    return sum(finding.severity == "error" for finding in result.findings)


def written_path(document: Document, finding: Finding | Related) -> tuple[str, ...]:
    """The keys that lead to the entry which a finding marks, as they are spelt."""
    place = finding.place.line, finding.place.column
    paths = [
        (*path, entry.key)
        for path, node in document.objects()
        for entry in node.entries
        if document.position(entry.key_span.start) == place
    ]
    return paths[0] if paths else ()


def ends(text: str) -> set[str]:
    """How its lines end."""
    return {"\r\n" if line.endswith("\r") else "\n" for line in text.split("\n")[:-1]}


def check_each(text: str, context: Context, file: str = "x.json") -> Counter[tuple[str, bool]]:
    """Try every fix of a text alone."""
    result, counts = lint(text, context, file), Counter[tuple[str, bool]]()
    if result.unusable:
        return counts
    before = read(text, file)
    for finding in result.findings:
        if finding.fix is None:
            continue
        changed = apply(text, finding.fix.edits)
        after, document = lint(changed, context, file), read(changed, file)
        path = written_path(before, finding)
        name = finding.code, *path
        assert names(after, document)[name] < names(result, before)[name], (text, finding)
        if finding.fix.safe:
            assert errors(after) <= errors(result), (text, finding, after.findings)
        lost, new = leaves(before) - leaves(document), leaves(document) - leaves(before)
        marked = [path, *(written_path(before, related) for related in finding.related)]
        assert all(any(key[: len(each)] == each for each in marked) for key, _ in lost), (text, finding)
        # A section that lost its only key shows as an empty one.
        values = Counter(value for _, value in new if value != "{}")
        assert values.total() <= max(1, lost.total()), (text, finding)
        assert comments(document) == comments(before), (text, finding)
        removed = "".join(text[edit.start : edit.end] for edit in finding.fix.edits)
        for sign in ("\r\n", "\t", "\ufeff"):
            kept = (sign in changed) == (sign in text) or "\n" not in changed
            assert kept or (sign in removed and sign not in changed), (text, finding)
        assert ends(changed) <= ends(text), (text, finding)
        assert text.endswith("\n") == changed.endswith("\n"), (text, finding)
        counts[finding.code, finding.fix.safe] += 1
    return counts


def check_all(text: str, context: Context, file: str = "x.json") -> None:
    """Mend a text: it does not get worse, a second time changes nothing, and no safe fix had to be left out."""
    result = lint(text, context, file)
    if result.unusable or result.skipped:
        return

    def relint(path: str, changed: str) -> Result:
        return lint(changed, context, file)

    for unsafe in (False, True):
        mended = mend(result, relint, unsafe=unsafe)
        assert errors(mended.result) <= errors(result)
        assert mended.result.findings == lint(mended.text, context, file).findings
        assert (mended.text == text) == (mended.fixed == 0)
        assert not [each for each in mended.result.findings if each.fix and each.fix.safe], (text, mended)
        again = mend(mended.result, relint, unsafe=unsafe)
        assert (again.text, again.fixed) == (mended.text, 0), text
        assert comments(read(mended.text, file)) == comments(read(text, file))


def written(example: Example) -> list[str]:
    """The text of an example, in JSON in several layouts."""
    if example.language == "json":
        return [*layouts(example.text), "\ufeff" + example.text]
    return [example.text, example.text.replace("\n", "\r\n")]


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.id)
def test_bad_examples(example: Example, tmp_path: Path) -> None:
    context, file = context_of(example, tmp_path), f"x.{example.language}"
    for text in written(example):
        check_each(text, context, file)
        check_all(text, context, file)


def test_rules_with_a_fix_show_it(tmp_path: Path) -> None:
    """Each fix that a rule page describes is offered for one of its examples."""
    counts: Counter[str] = Counter()
    for example in BAD:
        found = check_each(example.text, context_of(example, tmp_path), f"x.{example.language}")
        counts += Counter(code for code, _ in found)
    assert {rule["code"] for rule in RULES if rule["fix"]} <= set(counts)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
@pytest.mark.parametrize("context", [Context(), Context("deepspeed", 8), Context("trainer", 8)])
def test_fixtures(path: object, context: Context) -> None:
    try:
        text = path.read_bytes().decode()  # type: ignore[attr-defined]
        scan("", text)
    except (UnicodeDecodeError, Unusable):
        return
    for laid_out in layouts(text):
        check_each(laid_out, context)
        check_all(laid_out, context)


def test_mutants() -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    for number, mutant in enumerate(mutants(900, seed=3)):
        context = Context("deepspeed" if number % 2 else None, mutant.world_size)
        ways = list(layouts(mutant.text))
        text = ways[number % len(ways)]
        counts += check_each(text, context)
        if number % 4 == 0:
            check_all(text, context)
    codes = {code for code, _ in counts}
    assert len(codes) >= 10, counts
    assert {safe for _, safe in counts} == {True, False}


@needs_corpus
@pytest.mark.parametrize("path", corpus_json(), ids=lambda path: path.stem)
def test_public_configs(path: object) -> None:
    text = path.read_bytes().decode()  # type: ignore[attr-defined]
    check_each(text, Context("deepspeed", 8))
    check_all(text, Context())
