"""The condition language: what compiles, and the three-valued evaluator."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from configs import config_of, scope_of

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.compile import RuleError, compile_expression, compile_rule, compile_template
from dsconf.lint.evaluate import Scope
from dsconf.lint.words import show


def scope(world_size: int | None = None, **keys: Any) -> Scope:
    return scope_of(config_of(keys, world_size=world_size))


def value(text: str, world_size: int | None = None, **keys: Any) -> object:
    return scope(world_size, **keys).value(compile_expression(text))


# --- compiling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("None", ["literal", None]),
        ("-1.5", ["literal", -1.5]),
        ("'a'", ["literal", "a"]),
        ("a", ["path", "a"]),
        ("a.b.c", ["path", "a.b.c"]),
        ("fact.dp", ["fact", "dp"]),
        ("context.world_size", ["context", "world_size"]),
        ("key.name", ["key", "name"]),
        ("facts.x", ["path", "facts.x"]),
        ("present(a.b)", ["present", "a.b"]),
        ("auto(a)", ["auto", "a"]),
        ("optimizer_known(a.b)", ["optimizer_known", ["path", "a.b"]]),
        ("[1, a]", ["list", ["literal", 1], ["path", "a"]]),
        ("(1, 2)", ["list", ["literal", 1], ["literal", 2]]),
        ("a and b and c", ["and", ["path", "a"], ["path", "b"], ["path", "c"]]),
        ("a or not b", ["or", ["path", "a"], ["not", ["path", "b"]]]),
        ("a not in [1]", ["not in", ["path", "a"], ["list", ["literal", 1]]]),
        ("1 < a <= 2", ["and", ["<", ["literal", 1], ["path", "a"]], ["<=", ["path", "a"], ["literal", 2]]]),
        ("a % 2 // b", ["//", ["%", ["path", "a"], ["literal", 2]], ["path", "b"]]),
        ("  a \n", ["path", "a"]),
    ],
)
def test_compiles(text: str, code: list[Any]) -> None:
    assert compile_expression(text) == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an expression"),
        ("a b", "not an expression"),
        ("a = 1", "not an expression"),
        ("import os", "not an expression"),
        ("a is None", "comparison not allowed"),
        ("1 < a is not None", "comparison not allowed"),
        ("a.b()", r"'a\.b\(\)' is not allowed"),
        ("'x'.upper()", "is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("eval('1')", "is not allowed"),
        ("len(a)", "is not allowed"),
        ("lambda: 1", "is not allowed"),
        ("f'{a}'", "is not allowed"),
        ("a[0]", "is not allowed"),
        ("{1: 2}", "is not allowed"),
        ("{1, 2}", "is not allowed"),
        ("[x for x in a]", "is not allowed"),
        ("a if b else c", "is not allowed"),
        ("(a := 1)", "is not allowed"),
        ("a ** 2", "is not allowed"),
        ("a @ b", "is not allowed"),
        ("a << 1", "is not allowed"),
        ("~a", "is not allowed"),
        ("-a", "is not allowed"),
        ("*a", "not an expression|is not allowed"),
        ("...", "is not allowed"),
        ("b'x'", "is not allowed"),
        ("1j", "is not allowed"),
        ("present(path=a)", "is not allowed"),
        ("present(a, b=c)", "is not allowed"),
        ("present(*a)", "is no path"),
        ("present()", r"present\(\) takes 1 argument"),
        ("present(a, b)", r"present\(\) takes 1 argument"),
        ("present('a')", "is no path"),
        ("auto(a())", "is no path"),
        ("present(f(a).b)", "is no path"),
        ("f(a).b", "is no path"),
        ("optimizer_known(lambda: 1)", "is not allowed"),
        ("a and len(b)", "is not allowed"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        compile_expression(text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("{a.b}", [["path", "a.b"]]),
        ("x {a} y", ["x ", ["path", "a"], " y"]),
        ("{a}{b}", [["path", "a"], ["path", "b"]]),
        ("{{a}}", ["{a}"]),
        ("{{{a}}}", ["{", ["path", "a"], "}"]),
        ('"{key.name}": 1', ['"', ["key", "name"], '": 1']),
    ],
)
def test_template(text: str, pieces: list[Any]) -> None:
    assert compile_template(text) == pieces


@pytest.mark.parametrize("text", ["{}", "{a b}", "{a!r}", "{a:>3}", "{len(a)}", "{a", "a}", "{a {b}"])
def test_template_refused(text: str) -> None:
    with pytest.raises(RuleError):
        compile_template(text)


RULE = """# x
```toml
code = "DS999"
name = "x"
severity = "error"
formats = ["deepspeed"]
message = "m"
evidence = "e"
{}
```
"""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "a rule has one of"),
        ('schema = "unknown-key"\nraised_by = "reader"', "a rule has one of"),
        ('schema = "other"', "no schema kind 'other'"),
        ('when = "a"\ncolour = 1', "unknown field colour"),
        ('when = "len(a)"', "is not allowed"),
        ('when = "a"\nfails = "never"', "'never' is none of parse"),
        ('when = "a"\nhelp = "{"', "a brace without its other one"),
        ('when = "a"\nrelated = { b = "{len(b)}" }', "is not allowed"),
    ],
)
def test_rule_refused(lines: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        compile_rule(RULE.format(lines), "x/DS999-x.md")


def test_rule_needs_its_fields() -> None:
    with pytest.raises(RuleError, match="missing field evidence, message"):
        compile_rule('```toml\ncode="D"\nname="x"\nseverity="error"\nformats=[]\n```\n', "x.md")
    with pytest.raises(RuleError, match="no ```toml block"):
        compile_rule("# x\n", "x.md")
    with pytest.raises(RuleError, match="'fatal' is none of error, warning, info"):
        compile_rule(RULE.replace('"error"', '"fatal"').format('when = "a"'), "x.md")


# --- three values ------------------------------------------------------------------------------------------------

# A key without default that is not written is unknown.
SPELLINGS: dict[object, str] = {True: "1 == 1", False: "1 == 2", UNKNOWN: "sequence_parallel_size < 'x'"}
VALUES = (True, False, UNKNOWN)


def test_the_spellings_mean_what_they_should() -> None:
    for expected, text in SPELLINGS.items():
        assert value(text, sequence_parallel_size=2) is expected


@pytest.mark.parametrize(("left", "right"), list(product(VALUES, VALUES)))
def test_and_or(left: object, right: object) -> None:
    if False in (left, right):
        conjunction: object = False
    else:
        conjunction = UNKNOWN if UNKNOWN in (left, right) else True
    if True in (left, right):
        disjunction: object = True
    else:
        disjunction = UNKNOWN if UNKNOWN in (left, right) else False
    keys = {"sequence_parallel_size": 2}
    assert value(f"{SPELLINGS[left]} and {SPELLINGS[right]}", **keys) is conjunction
    assert value(f"{SPELLINGS[left]} or {SPELLINGS[right]}", **keys) is disjunction


@pytest.mark.parametrize(("inner", "result"), [(True, False), (False, True), (UNKNOWN, UNKNOWN)])
def test_not(inner: object, result: object) -> None:
    assert value(f"not ({SPELLINGS[inner]})", sequence_parallel_size=2) is result


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%"])
@pytest.mark.parametrize("text", ["train_batch_size {} 1", "1 {} train_batch_size"])
def test_unknown_operand(text: str, operator: str) -> None:
    assert value(text.format(operator), train_batch_size="auto") is UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        "train_batch_size in [1, 2]",
        "train_batch_size not in [1, 2]",
        "1 in [1, train_batch_size]",
        "[train_batch_size]",
        "optimizer_known(train_batch_size)",
        "'a' < 1",
        "1 in 2",
        "'a' + 1",
        "None < 1",
        "1 / 0",
        "1 // 0",
        "1 % 0",
        "1.5 % 0",
        "'%d' % 'x'",
    ],
)
def test_unknown(text: str) -> None:
    assert value(text, train_batch_size="auto") is UNKNOWN


def test_numbers_beyond_a_float_are_unknown() -> None:
    assert value("train_batch_size * 0.5", train_batch_size=10**400) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("7 // 2 + 7 % 2 * 2 - 1 / 2", 4.5),
        ("2 in [1, 2]", True),
        ("2 not in [1, 2]", False),
        ("'a' == 1", False),
        ("'a' != 1", True),
        ("'dam' in optimizer.type", True),
        ("1 < train_batch_size <= 8", True),
        ("1 < train_batch_size < 8", False),
        ("[train_batch_size, 1]", [8, 1]),
        ("train_batch_size", 8),
        ("zero_optimization.stage", 0),
        ("gradient_clipping", 1.0),
        ("optimizer_known(optimizer.type)", True),
        ("nearest_optimizer('adamw_torch')", "AdamW"),
        ("nearest_optimizer('whatever')", "AdamW"),
        ("nearest_optimizer('sgdd')", "SGD"),
    ],
)
def test_known(text: str, result: object) -> None:
    assert value(text, train_batch_size=8, optimizer={"type": "Adam"}) == result


def test_a_junction_of_plain_values_is_true_or_false() -> None:
    assert value("train_batch_size and 'text'", train_batch_size=8) is True
    assert value("0 or []") is False


@pytest.mark.parametrize(
    ("written", "present", "auto"),
    [
        ("{}", False, False),
        ('{"fp16": {"enabled": "auto"}}', True, True),
        ('{"fp16": {"enabled": null}}', True, False),
    ],
)
def test_predicates_look_at_what_is_written(written: str, present: bool, auto: bool) -> None:
    scope = scope_of(config_of(written))
    assert scope.value(compile_expression("present(fp16.enabled)")) is present
    assert scope.value(compile_expression("auto(fp16.enabled)")) is auto


def test_predicates_know_the_other_spelling_of_a_key() -> None:
    assert value("present(bf16.enabled)", bfloat16={"enabled": True}) is True
    assert value("auto(bf16.enabled)", bfloat16={"enabled": "auto"}) is True


def test_key_is_what_the_event_says() -> None:
    scope = scope_of(config_of({}), {"name": "x", "value": None})
    assert scope.value(compile_expression("key.name == 'x' and key.value == None")) is True


# --- what would have been needed ------------------------------------------------------------------------------


def test_missing_context_is_recorded() -> None:
    asked = scope()
    assert asked.value(compile_expression("context.world_size > 1")) is UNKNOWN
    assert asked.missing_context == {"world_size"}
    assert asked.unknown_keys == set()
    given = scope(world_size=2)
    assert given.value(compile_expression("context.world_size > 1")) is True
    assert given.missing_context == set()


def test_missing_context_comes_through_facts() -> None:
    asked = scope(train_batch_size=8)
    assert asked.value(compile_expression("fact.batch_problem == 'product'")) is UNKNOWN
    assert asked.missing_context == {"world_size"}
    assert asked.unknown_keys == set()


def test_unknown_keys_are_recorded() -> None:
    asked = scope(train_batch_size="auto")
    assert (
        asked.value(compile_expression("train_batch_size > 1 or fact.batch_problem == 'product'")) is UNKNOWN
    )
    assert asked.missing_context == set()
    assert "train_batch_size" in asked.unknown_keys


def test_what_is_decided_without_the_context_needs_none() -> None:
    decided = scope()
    assert decided.value(compile_expression("1 == 2 and context.world_size > 1")) is False
    assert decided.missing_context == set()


def test_first() -> None:
    cases = [[compile_expression("context.world_size > 1"), "many"], [compile_expression("1 == 1"), "one"]]
    assert scope(world_size=2).first(cases) == "many"
    assert scope().first(cases) == "one"
    assert scope().first([]) is None


# --- showing values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("auto", "auto"),
        (None, "null"),
        (True, "true"),
        (UNKNOWN, "?"),
        (8, "8"),
        (8.0, "8.0"),
        (5e8, "500000000"),
        (1e-5, "1e-05"),
        (1e300, "1e+300"),
        ([0.9, "a", None], '[0.9, "a", null]'),
        ({"enabled": True}, '{"enabled": true}'),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 117 + "..."),
    ],
)
def test_show(shown: object, text: str) -> None:
    assert show(shown) == text


def test_text_fills_a_message() -> None:
    template = compile_template(
        '{{"{optimizer.type}"}} at {zero_optimization.stage}, {gradient_accumulation_steps}'
    )
    assert scope(optimizer={"type": "Lion"}).text(template) == '{"Lion"} at 0, null'
    assert scope().text(None) == ""


def test_places_and_notes_may_have_conditions() -> None:
    lines = (
        'when = "a"\nat = ["b", { when = "c", is = "d" }]\n[related]\n"e.f" = [{ when = "g", is = "{h}" }]'
    )
    entry = compile_rule(RULE.format(lines), "x/DS999-x.md")
    assert entry["at"] == [[None, "b"], [["path", "c"], "d"]]
    assert entry["related"] == [["e.f", [[["path", "g"], [["path", "h"]]]]]]
    assert compile_rule(RULE.format('when = "a"\nat = "b.c"'), "x/DS999-x.md")["at"] == [[None, "b.c"]]
    assert compile_rule(RULE.format('when = "a"'), "x/DS999-x.md")["at"] == []


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        (None, True),
        ("0.19.3", True),
        ("0.19.7", True),
        ("0.19.2", False),
        ("0.16.9", False),
        ("0.19.10", True),
    ],
)
def test_since(version: str | None, wanted: bool) -> None:
    config = Config(scan("x", "{}"), load_keys(), Context(deepspeed_version=version))
    assert scope_of(config).value(compile_expression('since("0.19.3")')) is wanted
