"""Configs inside Markdown, shell scripts and Python files: found, judged, and named at their place in that file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from examples import lint_json
from hypothesis import given
from hypothesis import strategies as st

from dsconf.document.embedded import fenced_blocks, heredocs
from dsconf.document.node import UNKNOWN
from dsconf.document.python_dicts import NotPython, dict_literals

WRONG = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def found(name: str, text: str, *args: str) -> list[tuple[str, int, int, str]]:
    Path(name).write_text(text, encoding="utf-8")
    _, report = lint_json(name, *args)
    return [(each["rule"], each["line"], each["column"], each["severity"]) for each in report["findings"]]


# --- Markdown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    ["```json", "```", "~~~json", "````jsonc", "``` json title=x", "```{.json}", "```js", "```text"],
)
def test_a_fenced_block(opening: str) -> None:
    closing = opening[: len(opening) - len(opening.lstrip("`~"))]
    text = f"# Title\n\n{opening}\n{WRONG}\n{closing}\n\nmore ```x``` text\n"
    assert found("a.md", text) == [("unknown-top-level-key", 4, 39, "warning")]


def test_blocks_of_other_languages_and_other_json_are_left_alone() -> None:
    other = f"```python\nx = {WRONG}\n```\n```yaml\n{WRONG}\n```\n"
    text = f'{other}```json\n{{"name": 1}}\n```\n```json\n{WRONG[:-1]}\n```\n'
    Path("a.md").write_text(text)
    status, report = lint_json("a.md")
    assert (status, report["findings"]) == (0, [])
    assert report["skipped"][0]["reason"] == "it holds no DeepSpeed config"


def test_several_blocks_and_indentation() -> None:
    text = f"1. one\n   ```json\n   {WRONG}\n   ```\n2. two\n\n\t```\n\t{WRONG}\n\t```\n"
    assert [each[:3] for each in found("a.markdown", text)] == [
        ("unknown-top-level-key", 3, 42),
        ("unknown-top-level-key", 8, 40),
    ]


def test_a_page_may_show_a_part() -> None:
    """What is not shown is not known to be absent."""
    part = '```json\n{"zero_optimization": {"stage": 2}, "data_types": {"grad_accum_dtype": "fp32"}}\n```\n'
    assert found("a.md", part, "--consumer", "deepspeed") == []
    whole = found("a.json", part.split("\n")[1], "--consumer", "deepspeed")
    assert "batch-missing" in [each[0] for each in whole]


def test_no_closing_fence() -> None:
    assert list(fenced_blocks("```json\n{}\n")) == []


# --- shell -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    ["cat <<EOF > ds.json", "cat > ds.json << 'EOF'", 'cat <<"EOF" | tee x', "cat <<-EOF", "cat <<\\EOF"],
)
def test_a_heredoc(opening: str) -> None:
    text = f"#!/bin/bash\nset -e\n{opening}\n{WRONG}\nEOF\ndeepspeed train.py\n"
    assert found("run.sh", text) == [("unknown-top-level-key", 4, 39, "warning")]


def test_heredocs_one_after_another() -> None:
    text = f"cat <<A\nhello\nA\ncat <<-B\n\t{WRONG}\n\tB\ncat <<C\n{WRONG}\n"
    assert [text[start:end] for start, end in heredocs(text)] == [WRONG]
    assert found("run.bash", text)[0][1] == 5


# --- Python ------------------------------------------------------------------------------------------------------


def test_a_dict_in_python() -> None:
    text = (
        "import deepspeed\n"
        "é = 'ü'; ds_config = {'zero_optimization': {'stage': 2, 'overlap_com': True}, 'bf16': {'enabled': BF16},\n"
        "    'train_micro_batch_size_per_gpu': args.batch, 'optimizer': {'type': 'adamw_torch', 'params': p}}\n"
    )
    assert found("train.py", text) == [
        ("unknown-nested-key", 2, 57, "error"),
        ("optimizer-unknown-type", 3, 65, "error"),
    ]


def test_what_only_a_run_determines_is_no_error() -> None:
    text = (
        "c = {'train_micro_batch_size_per_gpu': f'{n}', 'train_batch_size': 2 * n, 'zero_optimization': zero(3),\n"
        "     'fp16': {'enabled': fp16, 'loss_scale': [x]}, 'optimizer': {'type': name, 'params': {'eps': (e, 1)}}}\n"
    )
    for consumer in ("deepspeed", "trainer", "accelerate"):
        assert found("train.py", text, "--consumer", consumer, "--world-size", "8") == []


BATCHLESS = "{'zero_optimization': {'stage': 1}, 'bf16': {'enabled': True}}"


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (f"deepspeed.initialize(model=m, config={BATCHLESS})", True),
        (f"run({BATCHLESS})", True),
        (f"config = {BATCHLESS}", True),
        (f"config: dict = {BATCHLESS}\ndeepspeed.initialize(config=config)\njson.dump(config, f)", True),
        (f"config = {BATCHLESS}\nconfig['train_batch_size'] = 8", False),
        (f"config = {BATCHLESS}\nconfig['bf16']['x'] = 8", False),
        (f"config = {BATCHLESS}\nconfig.update(train_batch_size=8)", False),
        (f"config = {BATCHLESS}\nconfig |= other", False),
        (f"config = {BATCHLESS}\nfill(config)", False),
        (f"config = {BATCHLESS}\nconfig = {BATCHLESS}", False),
        (f"def config():\n    return {BATCHLESS}", False),
        (f"config = {BATCHLESS[:-1]}, **batch}}", False),
        (f"config = {BATCHLESS[:-1]}, KEY: 4}}", False),
    ],
)
def test_keys_that_code_may_add(text: str, closed: bool) -> None:
    """Without a batch size DeepSpeed fails, but the code may set one after the literal."""
    rules = {each[0] for each in found("train.py", text, "--consumer", "deepspeed")}
    assert rules == ({"batch-missing"} if closed else set())


def test_a_table_of_configs() -> None:
    text = f"CONFIGS = {{'small': {WRONG}, 'none': {{'a': 1}}, 'large': [{WRONG}]}}\n"
    assert [each[2] for each in found("configs.py", text)] == [text.index('"gradient_cliping') + 1]


def test_a_key_twice_in_python() -> None:
    text = "c = {'train_batch_size': 8, 'bf16': {'enabled': True}, 'train_batch_size': 16}"
    assert found("train.py", text, "--consumer", "deepspeed") == [("duplicate-key", 1, 56, "warning")]


@pytest.mark.parametrize("text", ["def f(:\n", "print 'x'\n", "x = '\0'"])
def test_what_is_no_python_is_skipped_with_the_reason(text: str) -> None:
    with pytest.raises(NotPython, match="does not parse as Python 3"):
        dict_literals(text)
    if "\0" not in text:
        Path("a.py").write_text(text)
        status, report = lint_json("a.py")
        assert status == 0
        assert report["skipped"][0]["reason"] == "it does not parse as Python 3 (line 1)"


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-1e9, 1e9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=4), LITERALS, max_size=4),
    st.sampled_from(["", "é = 'ß'; ", "# ü\r\n\n"]),
)
def test_literals_are_read_as_python_reads_them(value: dict[str, object], before: str) -> None:
    text = f"{before}x = {value!r}\n"
    (node,) = dict_literals(text)
    assert node.plain() == value
    assert ast.literal_eval(text[node.span.start : node.span.end]) == value
    for entry in node.entries:
        assert ast.literal_eval(text[entry.key_span.start : entry.key_span.end]) == entry.key
        part = text[entry.node.span.start : entry.node.span.end]
        assert ast.literal_eval(part) == entry.node.plain()


def test_no_literal_is_unknown() -> None:
    (node,) = dict_literals(
        "x = {'a': f(1), 'b': [1, y], 'c': -z, 'd': b'x', 'e': 1j, 'f': ..., 'g': 'p' 'q'}"
    )
    values = {entry.key: entry.node.plain() for entry in node.entries}
    assert {key for key, value in values.items() if value is UNKNOWN} == set("abcdef")
    assert values["g"] == "pq"


OPEN = [
    "'bf16': {'enabled': True}",
    "'zero_optimization': {'stage': 2}, 'scheduler': {'type': 'WarmupDecayLR', 'params': {}}",
    "'zero_optimization': {'stage': 2}, 'scheduler': {'type': 'WarmupLR'}",
    "'zero_optimization': {}, 'data_efficiency': {'data_sampling': {'curriculum_learning': {'enabled': True}}}",
    "'zero_optimization': {}, 'data_efficiency': {'data_sampling': {'curriculum_learning': METRICS}}",
    "'zero_optimization': {}, 'data_efficiency': {'data_routing': {'random_ltd': {'enabled': True}}}",
    "'zero_optimization': {}, 'data_efficiency': {'data_sampling': {'dynamic_batching': {'enabled': True}}}",
    "'zero_optimization': {'stage': 3, 'offload_param': {'device': 'nvme'}}",
]


@pytest.mark.parametrize("keys", OPEN)
def test_what_is_missing_may_come_from_code(keys: str) -> None:
    """Each of these is refused by somebody as it stands, and none where code goes on to write into the dict."""
    keys = keys.replace("METRICS", "{'enabled': True, 'curriculum_metrics': {'seqlen': {}}}")
    text = f"c = {{'train_micro_batch_size_per_gpu': 4, 'optimizer': {{'type': 'AdamW'}}, {keys}}}\n"
    said = []
    for consumer in ("deepspeed", "trainer", "accelerate"):
        said += found("closed.py", text, "--consumer", consumer)
        assert found("open.py", f"{text}fill(c)\n", "--consumer", consumer) == []
    assert "error" in {each[3] for each in said}
