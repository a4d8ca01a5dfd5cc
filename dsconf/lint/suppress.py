"""Takes out what comments and per-file ignores suppress, and finds the suppressions that nothing needs.

A comment `dsconf: ignore[DS301, name] reason` counts for its line, on a line of its own for the next one;
`dsconf: ignore-file[...]` ahead of the first key counts for the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dsconf.document.node import Document, Edit, Span, line_starts
from dsconf.lint.finding import Finding, Fix, Place, Result, place_of, printable
from dsconf.lint.selection import Rule, exactness, unknown

RULE = "unused-suppression"
_MARK = re.compile(r"(?://|#|/\*)\s*dsconf:\s*")
_FORM = re.compile(r"(ignore|ignore-file)\s*\[([^\]]*)\]")
_DOCUMENT_START = re.compile(r"^---(?=\s)", re.MULTILINE)
_BLANK = " \t"


class Ignore:
    """One selector of one suppression, and what became of it."""

    __slots__ = ("key", "needed", "selector", "undecided")

    def __init__(self, selector: str, key: str | None = None) -> None:
        self.selector = selector
        self.key = key
        """The key that it is about, with all below; None for the whole file."""
        self.needed = False
        """Whether it took a finding out."""
        self.undecided = False
        """Whether it may be needed where more is known, or where other rules run."""

    def takes(self, finding: Finding) -> bool:
        """Whether the finding is one that it is about."""
        if self.key is not None and finding.key != self.key and not finding.key.startswith(f"{self.key}."):
            return False
        return exactness(self.selector, {"code": finding.code, "name": finding.rule}) >= 0


class _Comment:
    def __init__(self, span: Span, line: int | None) -> None:
        self.span = span
        self.line = line
        """The line that it counts for; None for all."""
        self.ignores: list[Ignore] = []
        self.selectors = Span(0, 0)
        self.fault: str | None = None


def suppress(
    result: Result, every: Sequence[Rule], running: Sequence[Rule], ignores: Sequence[Ignore]
) -> Result:
    """The result without what is suppressed. `ignores` are those for this file, `every` all rules that there are."""
    if not result.documents:
        return result
    document = result.documents[0]
    comments = list(_comments(result.documents))
    kept = [finding for finding in result.findings if not _taken(finding, comments, ignores)]
    active = {rule["name"] for rule in running} - result.undecided
    for ignore in [*ignores, *(ignore for comment in comments for ignore in comment.ignores)]:
        ignore.undecided |= undecided(ignore.selector, every, active)
    rule = next((rule for rule in running if rule["name"] == RULE), None)
    if rule is not None:
        found = [finding for comment in comments for finding in _unused(comment, document, rule, every)]
        kept += [finding for finding in found if not _taken(finding, (), ignores)]
        kept.sort(key=lambda finding: (finding.place[1:3], finding.code))
    return result._replace(findings=kept)


def undecided(selector: str, every: Sequence[Rule], active: set[str]) -> bool:
    """Whether a selector names a rule that was not decided, or not asked."""
    named = [rule["name"] for rule in every if exactness(selector, rule) >= 0]
    return RULE in named or not active.issuperset(named)


def _taken(finding: Finding, comments: Iterable[_Comment], ignores: Iterable[Ignore]) -> bool:
    """Whether something takes the finding out; all that would do so are needed."""
    line = finding.place.line
    fitting = [
        ignore
        for comment in comments
        if comment.line in (None, line)
        for ignore in comment.ignores
        if ignore.takes(finding)
    ]
    fitting += [ignore for ignore in ignores if ignore.takes(finding)]
    for ignore in fitting:
        ignore.needed = True
    return bool(fitting)


def _comments(documents: Sequence[Document]) -> Iterator[_Comment]:
    """The suppressions of a file, those with a fault too."""
    document = documents[0]
    text, root = document.text, document.root
    first = root.entries[0].key_span.start if root.entries else root.span.end
    others = _python_comments(document) if document.language == "python" else _noted_comments(documents)
    for span in others:
        mark = _MARK.match(text, span.start, span.end)
        if mark is None:
            continue
        form = _FORM.match(text, mark.end(), span.end)
        comment = _Comment(span, _line(document, span, others))
        if form is None:
            comment.fault = (
                "this suppresses nothing: write dsconf: ignore[CODE], or dsconf: ignore-file[CODE]"
            )
        elif form[1] == "ignore-file":
            comment.line = None
            if span.start > first:
                comment.fault = "ignore-file suppresses nothing here: it stands ahead of the first key"
        if form is not None:
            names = [name.strip() for name in form[2].split(",")]
            comment.selectors = Span(*form.span(2))
            comment.ignores = [] if comment.fault else [Ignore(name) for name in names if name]
            if not (comment.fault or comment.ignores):
                comment.fault = "this suppresses nothing: no rule stands between the brackets"
        yield comment


def _noted_comments(documents: Iterable[Document]) -> list[Span]:
    """The comments that the reader of JSON or YAML noted, once each: documents of one YAML file share them."""
    spans = (
        relaxation.span
        for document in documents
        for relaxation in document.relaxations
        if relaxation.what == "a comment"
    )
    return list(dict.fromkeys(spans))


def _python_comments(document: Document) -> list[Span]:
    """All comments of a Python file, which parses."""
    import io
    import tokenize

    starts = line_starts(document.text)
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(document.text, newline="").readline):
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            spans.append(Span(start, start + len(token.string)))
    return spans


def _line(document: Document, span: Span, comments: Sequence[Span]) -> int:
    """The line that a comment counts for: its own, or where nothing else stands there the next that has content."""
    number = document.position(span.start)[0]
    if document.text[_line_start(document, span.start) : span.start].strip():
        return number
    at = span.end
    begins = {comment.start: comment.end for comment in comments}
    if document.language == "yaml":
        begins |= {mark.start(): mark.end() for mark in _DOCUMENT_START.finditer(document.text)}
    while at < len(document.text) and (document.text[at].isspace() or at in begins):
        at = begins.get(at, at + 1)
    return document.position(min(at, len(document.text)))[0]


def _line_start(document: Document, offset: int) -> int:
    return document.text.rfind("\n", 0, offset) + 1


def _unused(comment: _Comment, document: Document, rule: Rule, every: Sequence[Rule]) -> Iterator[Finding]:
    if comment.fault:
        yield finding_of(rule, place_of(document, comment.span), comment.fault)
        return
    unused = [ignore for ignore in comment.ignores if not (ignore.needed or ignore.undecided)]
    if not unused:
        return
    message = unused_message([ignore.selector for ignore in unused], every)
    left = [ignore.selector for ignore in comment.ignores if ignore not in unused]
    edit = Edit(*comment.selectors, ", ".join(left)) if left else _without(document, comment.span)
    description = "remove what suppresses nothing" if left else "remove the comment"
    yield finding_of(rule, place_of(document, comment.span), message, fix=Fix(True, description, (edit,)))


def unused_message(selectors: Sequence[str], every: Sequence[Rule]) -> str:
    """What to say of selectors that suppress nothing."""
    faults = [fault for selector in selectors if (fault := unknown(selector, every))]
    known = [selector for selector in selectors if not unknown(selector, every)]
    if known:
        faults.insert(
            0, f"{', '.join(known)} {'finds' if len(known) == 1 else 'find'} nothing here to suppress"
        )
    return "; ".join(faults)


def finding_of(rule: Rule, place: Place, message: str, key: str = "", fix: Fix | None = None) -> Finding:
    """A finding of the rule for unused suppressions."""
    severity: Any = rule["severity"][-1][1]
    return Finding(
        rule["code"], rule["name"], severity, None, place, key, printable(message), url=rule["url"], fix=fix
    )


def _without(document: Document, span: Span) -> Edit:
    """Takes a comment out, with its line where nothing else stands there, else with the blanks before it."""
    text, start, end = document.text, span.start, span.end
    while start and text[start - 1] in _BLANK:
        start -= 1
    after = end
    while after < len(text) and text[after] in _BLANK + "\r":
        after += 1
    alone = (start == 0 or text[start - 1] == "\n") and text[after : after + 1] == "\n"
    return Edit(start, after + 1 if alone else end, "")
