"""Runs the rules over one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from dsconf.config.context import CONSUMER_NAMES, Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import Reader, scan
from dsconf.document.node import UNKNOWN, Document, Node, Reading, Span
from dsconf.document.source import Unusable, check_file, decode, read_text
from dsconf.lint.evaluate import Scope
from dsconf.lint.event import Event
from dsconf.lint.finding import Finding, Fix, Related, Result, place_of, printable
from dsconf.lint.formats import facts_of, format_named
from dsconf.lint.pieces import Opener, Read, Skipped
from dsconf.lint.recognise import other_language
from dsconf.lint.schema import events
from dsconf.lint.verdicts import Verdicts

Rule = dict[str, Any]
_CHECKED = 200_000
"""Characters of one file that are read again to check its fixes."""


def lint_file(path: str, rules: list[Rule], context: Context, *, recognise: bool | None = None) -> Result:
    """Lint one file. Never raises for what a file may hold.

    `recognise`: whether what looks like no DeepSpeed config is skipped; by default where the consumer is not known.
    """
    try:
        reason = other_language(path)
        if reason is not None:
            check_file(path)
            return Result(path, [], skipped=reason)
        text = read_text(path)
    except Unusable as problem:
        return unusable_result(path, problem, rules, context)
    return lint_text(path, text, rules, context, recognise=recognise)


def lint_bytes(
    path: str, data: bytes, rules: list[Rule], context: Context, *, recognise: bool | None = None
) -> Result:
    """Lint the content of one file, under the name `path`. Never raises for what it may hold."""
    try:
        text = decode(data)
    except Unusable as problem:
        return unusable_result(path, problem, rules, context)
    return lint_text(path, text, rules, context, recognise=recognise)


def lint_text(
    path: str, text: str, rules: list[Rule], context: Context, *, recognise: bool | None = None
) -> Result:
    """Lint the text of one file, under the name `path`. Never raises for what it may hold."""
    if recognise is None:
        recognise = context.consumer is None
    try:
        found = opener(context).pieces(path, text, recognise=recognise)
    except Unusable as problem:
        return unusable_result(path, problem, rules, context)
    except Skipped as reason:
        return Result(path, [], skipped=str(reason), text=text)
    results = [lint_config(piece.config, rules, piece.read) for piece in found]
    return results[0] if len(results) == 1 else _merged(path, text, results)


def _merged(path: str, text: str, results: list[Result]) -> Result:
    """The results for the configs of one file as one."""
    missing = tuple(dict.fromkeys(pair for result in results for pair in result.missing_context))
    findings = [finding for result in results for finding in result.findings]
    return Result(
        path,
        sorted(findings, key=lambda finding: (finding.place[1:], finding.code)),
        missing_context=missing,
        text=text,
        documents=tuple(document for result in results for document in result.documents),
        undecided=frozenset(name for result in results for name in result.undecided),
    )


def open_document(path: str, context: Context) -> Document:
    """The Document of a JSON file, as the consumer reads it. Raises Unusable where it can't."""
    return parse(path, read_text(path), context)


def parse(path: str, text: str, context: Context, start: int = 0, end: int | None = None) -> Document:
    """The Document of a JSON text, or of a piece of it, as the consumer reads it. Raises Unusable where it can't."""
    consumer = context.consumer
    reader: Reader = "any" if consumer is None else "hjson" if consumer == "deepspeed" else "json"
    document = scan(path, text, start, end, reader=reader)
    if document.relaxations and consumer is not None and reader == "json":
        what, span = document.relaxations[0]
        name = CONSUMER_NAMES[consumer]
        message = f"{name} reads this file with json.load, which refuses {what}"
        raise Unusable("json-syntax", message, span, document.text)
    return document


def opener(context: Context, overrides: Mapping[str, object] | None = None) -> Opener:
    """What finds the Configs of files in a Context; `overrides` count instead of what they hold."""
    return Opener(context, scan, parse, overrides)


def lint_config(config: Config, rules: list[Rule], read: Read | None = None) -> Result:
    """Run every rule over a Config. `read` parses a changed text; by default as the JSON of the Config's consumer."""
    facts = facts_of(config)
    rules = [rule for rule in rules if config.format in rule["formats"]]
    found: list[_Found] = []
    missing: list[tuple[str, str]] = []
    undecided: set[str] = set()
    happened: dict[str, list[Event]] = {}
    for event in events(config, facts):
        happened.setdefault(event.kind, []).append(event)
    kinds = {rule["kind"] for rule in rules}
    for name, check in format_named(config.format).checks.items():
        for told in check(config, facts) if name in kinds else ():
            if isinstance(told, Event):
                happened.setdefault(name, []).append(told)
            else:
                missing += [(rule["name"], told.field) for rule in rules if rule["kind"] == name]
    verdicts = Verdicts(config, lambda: Scope(config, facts))
    for rule in rules:
        if rule["kind"] == "when":
            value, lacks = verdicts.of(rule)
            if value is True:
                found.append(_finding(rule, config, Scope(config, facts), None))
            elif value is UNKNOWN:
                undecided.add(rule["name"])
                missing += [(rule["name"], field) for field in lacks]
            continue
        for event in happened.get(rule["kind"], ()):
            scope = Scope(config, facts, event.key)
            value = True if rule["when"] is None else scope.value(rule["when"])
            if value is True:
                found.append(_finding(rule, config, scope, event))
            elif value is UNKNOWN:
                undecided.add(rule["name"])
    found.sort(key=lambda each: (each.span, each.finding.code))
    undecided |= {name for name, _ in missing}
    document = config.document
    if read is None:
        read = partial(parse, document.path, context=config.context)
    findings = _with_fixes(found, document, read)
    return Result(
        document.path, findings, missing_context=tuple(missing), text=document.text, documents=(document,),
        undecided=frozenset(undecided), guess=config.context.guess,
    )  # fmt: skip


class _Found(NamedTuple):
    span: Span
    finding: Finding
    rule: Rule
    scope: Scope
    start: int | None
    """Where the finding's own entry begins."""


def _with_fixes(found: list[_Found], document: Document, read: Read) -> list[Finding]:
    """The findings with their fixes; each of these costs to read the text again, so that there are not too many."""
    left = max(1, _CHECKED // len(document.text))
    findings = []
    for each in found:
        finding = each.finding
        fix = each.scope.first(each.rule["fix"]) if left and document.language in ("json", "yaml") else None
        if fix is not None:
            from dsconf.lint.fixes import edits_of  # only where there is something to fix

            left -= 1
            scope, doubled = each.scope, each.rule["kind"] == "duplicate-key"
            operations = scope.operations(fix["edits"])
            edits = edits_of(operations, scope.config, each.start, doubled, read)
            if edits is not None:
                safe, description = scope.first(fix["safe"]) is True, scope.text(fix["description"])
                finding = finding._replace(fix=Fix(safe, printable(description), edits))
        findings.append(finding)
    return findings


def _finding(rule: Rule, config: Config, scope: Scope, event: Event | None) -> _Found:
    document = config.document
    if event is not None:
        key, span = event.path, event.span
        related = [Related(place_of(document, place), note) for place, note in event.related]
        related += [Related(place_of(other, place), note) for other, place, note in event.elsewhere]
    else:
        key, span = _primary(rule["at"], config, scope)
        related = list(_related(rule, scope, key))
    severity, fails = scope.first(rule["severity"]), scope.first(rule["fails"])
    if event is not None and "fails" in event.key and not rule["fails"]:
        fails = event.key["fails"]
    advice = printable(scope.text(scope.first(rule["help"]))) or None
    message = printable(scope.text(scope.first(rule["message"])))
    finding = Finding(
        rule["code"], rule["name"], severity, None if fails == "not" else fails, place_of(document, span), key, message,
        advice, tuple(related), rule["url"],
    )  # fmt: skip
    entry = config.entry(key) if event is None else None
    start = entry.key_span.start if entry else event.span.start if event else None
    return _Found(span, finding, rule, scope, start)


def _primary(places: list[list[Any]], config: Config, scope: Scope) -> tuple[str, Span]:
    """The first of the rule's keys that is written and meant; else the brace that opens the file's object."""
    for condition, path in places:
        entry = config.entry(path)
        if entry is not None and (condition is None or scope.value(condition) is True):
            return path, _shown(config.document, entry.span, entry.key_span)
    start = config.document.root.span.start
    return places[0][1] if places else "", Span(start, start + 1)


def _shown(document: Document, span: Span, key_span: Span) -> Span:
    """The whole `"key": value` where it stands on one line, else the key."""
    return span if "\n" not in document.text[span.start : span.end] else key_span


def _related(rule: Rule, scope: Scope, primary: str) -> Iterator[Related]:
    for path, notes in rule["related"]:
        config, place = scope.at(path)
        entry, note = config.entry(place) if config else None, scope.first(notes)
        if config is not None and entry is not None and path != primary and note is not None:
            shown = place_of(config.document, _shown(config.document, entry.span, entry.key_span))
            yield Related(shown, printable(scope.text(note)))


def unusable_result(path: str, problem: Unusable, rules: list[Rule], context: Context) -> Result:
    """The result for a file that can't be read: one finding, of the rule that the problem names."""
    rule = next(rule for rule in rules if rule["name"] == problem.rule)
    document = Document(path, problem.text or "", Reading(Node("object", 0), [], [], []))
    config = Config(document, {"keys": {}}, context)
    scope = Scope(config, facts_of(config), {"refused": True})
    severity, fails = scope.first(rule["severity"]), scope.first(rule["fails"])
    place = place_of(document, problem.span or Span(0, 0))
    finding = Finding(
        rule["code"], rule["name"], severity, None if fails == "not" else fails, place, "",
        printable(problem.message), url=rule["url"],
    )  # fmt: skip
    return Result(path, [finding], unusable=True, text=problem.text)
