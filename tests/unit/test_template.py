"""Templates: what is left open, what is judged all the same, and what is no template but broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus import corpus_json, needs_corpus
from examples import lint_json

from dsconf.config.context import CONSUMERS
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.document.source import Unusable
from dsconf.document.template import is_open, is_placeholder

OPEN = [
    "${X}", "$X", "${X:-4}", "$(nproc)", "{{ x }}", "{{x}}", "{{- x | int -}}", "<x>", "<batch size>", "__X__", "@x@",
    "%(x)s", "BATCH_SIZE", "GBSIZE", "CL_1st_MIN", "W_BIT1", "1e-${X}", "-$X", "$A$B", "{{ a }}{{ b }}", "$HOME/x",
]  # fmt: skip


@pytest.mark.parametrize("reader", ["json", "hjson", "any"])
@pytest.mark.parametrize("bare", OPEN)
def test_a_bare_placeholder(bare: str, reader: Any) -> None:
    text = f'{{"a": {bare}, "b": [1, {bare}], "c": {{"d": {bare}}}, "e": 2}}'
    document = scan("x.json", text, reader=reader)
    assert document.root.plain() == {"a": UNKNOWN, "b": UNKNOWN, "c": {"d": UNKNOWN}, "e": 2}
    assert [text[slice(*span)] for span in document.placeholders] == [bare] * 3
    assert document.relaxations == []
    assert document.misreadings == []


@pytest.mark.parametrize("bare", OPEN)
def test_a_placeholder_in_hjson(bare: str) -> None:
    text = f"{{\n a: {bare}\n b: {bare}  # c\n c: [{bare}\n 1]\n}}"
    document = scan("x.json", text)
    assert document.root.plain() == {"a": UNKNOWN, "b": UNKNOWN, "c": UNKNOWN}
    assert [text[slice(*span)] for span in document.placeholders] == [bare] * 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${LR}", True), ("1e-${EXP}", True), ("$OFFLOAD_DEVICE", True), ("{{ a / b }}", True), ("%(x)s", True),
        ("<batch_size>", True), ("__BATCH__", True), ("@x@", True), ("{% if a %}1{% endif %}", True),
        ("/local/$USER/nvme", False), ("${HOME}/x", False), ("C:\\$X", False), ("US$ 5", False), ("$5", False),
        ("a@b.c", False), ("a < b > c", False), ("__init__.py", False), ("{}", False), ("100%", False), ("", False),
        ("BATCH_SIZE", False), ("auto", False),
    ],
)  # fmt: skip
def test_text_with_a_placeholder(value: str, expected: bool) -> None:
    assert is_open(value) is expected
    document = scan("x.json", json.dumps({"a": value}))
    assert document.root.plain() == {"a": UNKNOWN if expected else value}
    assert len(document.placeholders) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"a": TRUE}', '{"a": NONE}', '{"a": CPU}', '{"a": FP16}', '{"a": $}', '{"a": ${X}', '{"a": {{ x }}',
        '{"a": {{"b": 1}}}', '{"a": <x}', '{"a": <>}', '{"a": %x}', '{"a": @x}', '{"a": __x}', '{"a": $X $Y}',
        '{"a": $X "b": 1}', '{"a": BATCH SIZE}', '{"a": batch_size}', '{"a": ...}', '{"a" $X}', "$X", "{{ x }}",
        '{"a": {% if x %}1{% else %}2}', '{"a": {%}', '{"a": Adam_W}',
    ],
)  # fmt: skip
def test_what_is_broken_is_no_template(text: str) -> None:
    for reader in ("json", "hjson", "any"):
        with pytest.raises(Unusable):
            scan("x.json", text, reader=reader)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {% if x %}1{% else %}2{% endif %}, "b": 3}', {"a": UNKNOWN, "b": 3}),
        ('{"a": 1{% if x %}, "b": 2{% endif %}}', {"a": 1, "b": UNKNOWN}),
        ('{ {% if x %} "a": 1, {% elif y %} "a": 2, {% endif %} "b": {"c": 3} }', {"a": UNKNOWN, "b": {"c": 3}}),
        ('{% set n = 4 %}\n{"a": {{ n }}, "b": 1}', {"a": UNKNOWN, "b": 1}),
        ('{% if x %}{"a": {% if y %}1{% else %}{% if z %}2{% endif %}{% endif %}}{% endif %}', {"a": UNKNOWN}),
        ('{"a": [{% for i in n %}{{ i }},{% endfor %} 1]}', {"a": UNKNOWN}),
    ],
)  # fmt: skip
def test_branches(text: str, expected: dict[str, Any]) -> None:
    assert scan("x.json", text).root.plain() == expected


def test_placeholders_in_the_place_of_keys_and_entries() -> None:
    document = scan("x.json", '{"${K}": 1, {{ k }}: 2, "a": 3, {{ more }} "b": 4, $REST}')
    assert [entry.key for entry in document.root.entries] == ["${K}", "{{ k }}", "a", "b"]
    assert [is_placeholder(entry.key) for entry in document.root.entries] == [True, True, False, False]


def linted(text: str, *args: str) -> tuple[int, list[tuple[str, str]]]:
    Path("ds.json").write_text(text, encoding="utf-8")
    status, report = lint_json("ds.json", *args)
    return status, [(finding["rule"], finding["severity"]) for finding in report["findings"]]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("value", ["$X", '"${X}"', "{{ x }}", "GB_SIZE"])
def test_nothing_is_wrong_with_what_is_open(consumer: str, value: str) -> None:
    keys = ["train_batch_size", "gradient_clipping", "prescale_gradients", "bf16", "optimizer"]
    sections = {"zero_optimization": ["stage", "offload_param", "{{ k }}"], "fp16": ["enabled", "loss_scale"]}
    entries = [f'"{key}": {value}' for key in keys]
    for section, names in sections.items():
        inside = ", ".join(f'"{key}": {value}' for key in names)
        entries.append(f'"{section}": {{{inside}}}')
    text = "{" + ", ".join(entries) + "}"
    assert linted(text, "--consumer", consumer) == (0, [("template-placeholder", "info")])


def test_the_rest_of_a_template_is_judged() -> None:
    text = '{"train_batch_size": $X, "zero_optimization": {"stage": 7}, "gradient_cliping": 1}'
    assert linted(text) == (
        1,
        [("template-placeholder", "info"), ("invalid-enum", "error"), ("unknown-top-level-key", "warning")],
    )


@needs_corpus
def test_templates_of_the_corpus() -> None:
    """Scripts fill in these: what is written in them is sound, but for keys that have been removed since."""
    templates = [path for path in corpus_json() if "TEMPLATE" in path.name]
    assert len(templates) > 15
    for path in templates:
        for consumer in CONSUMERS:
            _, report = lint_json(path, "--consumer", consumer)
            rules = {finding["rule"] for finding in report["findings"] if finding["severity"] == "error"}
            assert rules <= {"removed-key"}, path.name
            assert "template-placeholder" in {finding["rule"] for finding in report["findings"]}
