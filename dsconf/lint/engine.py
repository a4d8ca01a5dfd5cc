"""Runs the rules over one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsconf.config.context import CONSUMER_NAMES, Context
from dsconf.config.derive import facts_of
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN, Document, Node, Span
from dsconf.document.source import Unusable, check_file, read_text
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.checks import CHECKS
from dsconf.lint.evaluate import Scope
from dsconf.lint.event import Event
from dsconf.lint.finding import Finding, Related, Result, place_of, printable
from dsconf.lint.recognise import not_deepspeed, other_format
from dsconf.lint.schema import events

Rule = dict[str, Any]


def lint_file(path: str, rules: list[Rule], context: Context) -> Result:
    """Lint one JSON file. Never raises for what a file may hold."""
    try:
        reason = other_format(path)
        if reason is not None:
            check_file(path)
            return Result(path, [], skipped=reason)
        document = scan(path, read_text(path))
        refuse_relaxations(document, context)
    except Unusable as problem:
        return unusable_result(path, problem, rules, context)
    table = load_keys(context.deepspeed_version)
    reason = None if context.consumer else not_deepspeed(document, table)
    if reason is not None:
        return Result(path, [], skipped=reason, text=document.text)
    return lint_config(Config(document, table, context), rules)


def refuse_relaxations(document: Document, context: Context) -> None:
    """Raises Unusable where the consumer reads strict JSON and the file is not."""
    if document.relaxations and context.consumer not in (None, "deepspeed"):
        what, span = document.relaxations[0]
        reader = CONSUMER_NAMES[context.consumer]
        message = f"{reader} reads this file with json.load, which refuses {what}"
        raise Unusable("json-syntax", message, span, document.text)


def lint_config(config: Config, rules: list[Rule]) -> Result:
    """Run every rule over a Config."""
    facts = facts_of(config)
    found: list[tuple[Span, Finding]] = []
    undecided: list[tuple[str, str]] = []
    happened: list[Event] = list(events(config, facts))
    for name in {rule["kind"] for rule in rules} & set(CHECKS):
        for event in CHECKS[name](config, facts):
            if isinstance(event, Event):
                happened.append(event)
            else:
                undecided += [(rule["name"], event.field) for rule in rules if rule["kind"] == name]
    for rule in rules:
        if "deepspeed" not in rule["formats"]:
            continue
        if rule["kind"] == "when":
            scope = Scope(config, facts)
            verdict = scope.value(rule["when"])
            if verdict is True:
                found.append(_finding(rule, config, scope, None))
            elif verdict is UNKNOWN and not scope.unknown_keys:
                undecided += [(rule["name"], field) for field in sorted(scope.missing_context)]
            continue
        for event in happened:
            if event.kind != rule["kind"]:
                continue
            scope = Scope(config, facts, event.key)
            if rule["when"] is None or scope.value(rule["when"]) is True:
                found.append(_finding(rule, config, scope, event))
    found.sort(key=lambda pair: (pair[0], pair[1].code))
    findings = [finding for _, finding in found]
    path, text = config.document.path, config.document.text
    return Result(path, findings, missing_context=tuple(undecided), text=text)


def _finding(rule: Rule, config: Config, scope: Scope, event: Event | None) -> tuple[Span, Finding]:
    document = config.document
    if event is not None:
        key, span = event.path, event.span
        related = [Related(place_of(document, place), note) for place, note in event.related]
    else:
        key, span = _primary(rule["at"], config, scope)
        related = list(_related(rule, config, scope, key))
    severity, fails = scope.first(rule["severity"]), scope.first(rule["fails"])
    if event is not None and "fails" in event.key and not rule["fails"]:
        fails = event.key["fails"]
    advice = printable(scope.text(scope.first(rule["help"]))) or None
    message = printable(scope.text(scope.first(rule["message"])))
    finding = Finding(
        rule["code"], rule["name"], severity, None if fails == "not" else fails, place_of(document, span), key, message,
        advice, tuple(related), rule["url"],
    )  # fmt: skip
    return span, finding


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


def _related(rule: Rule, config: Config, scope: Scope, primary: str) -> Iterator[Related]:
    for path, notes in rule["related"]:
        entry, note = config.entry(path), scope.first(notes)
        if entry is not None and path != primary and note is not None:
            place = place_of(config.document, _shown(config.document, entry.span, entry.key_span))
            yield Related(place, printable(scope.text(note)))


def unusable_result(path: str, problem: Unusable, rules: list[Rule], context: Context) -> Result:
    """The result for a file that can't be read: one finding, of the rule that the problem names."""
    rule = next(rule for rule in rules if rule["name"] == problem.rule)
    document = Document(path, problem.text or "", Node("object", 0), [])
    config = Config(document, {"keys": {}}, context)
    scope = Scope(config, facts_of(config))
    severity, fails = scope.first(rule["severity"]), scope.first(rule["fails"])
    place = place_of(document, problem.span or Span(0, 0))
    finding = Finding(
        rule["code"], rule["name"], severity, None if fails == "not" else fails, place, "",
        printable(problem.message), url=rule["url"],
    )  # fmt: skip
    return Result(path, [finding], unusable=True, text=problem.text)
