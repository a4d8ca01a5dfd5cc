"""Files that are no strict JSON: what lint says for DeepSpeed and for json.load, against both."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dsconf.config.context import Context
from dsconf.lint.engine import lint_file
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules

from .judge import World, ds_config, hjson

pytestmark = pytest.mark.oracle

RULES = load_rules()
KEYS = [
    "train_batch_size", "gradient_clipping", "steps_per_print", "prescale_gradients", "wall_clock_breakdown",
    "communication_data_type", "zero_optimization.stage", "zero_optimization.overlap_comm",
    "zero_optimization.reduce_bucket_size", "zero_optimization.offload_param.device", "fp16.enabled", "fp16.loss_scale",
    "bf16.enabled", "tensorboard.enabled", "tensorboard.job_name",
]  # fmt: skip
TEXTS = [
    "True", "False", "None", "True,", "False,", "None,", "true", "false,", "auto,", "2", "2,", ".5", ".5,", "01",
    "1_000", "1_000,", "0x10", "NaN", "cpu", "cpu,", "cpu # c", "fp16", "fp16,", "“cpu”", "2 # c", "True # c",
]  # fmt: skip


def file_with(path: str, text: str) -> str:
    """A config in which the key at `path` has `text` for a value, to the end of its line."""
    *sections, name = path.split(".")
    batch = "" if name == "train_batch_size" else '"train_batch_size": 4,\n'
    opened = "".join(f'"{section}": {{\n' for section in sections)
    return "{\n" + batch + opened + f'"{name}": {text}\n' + "}\n" * (len(sections) + 1)


def deepspeed_reads(path: Path) -> Any:
    """The DeepSpeedConfig of a file, or the exception that it raised."""
    with mock.patch.object(ds_config, "dist", World(1)):
        try:
            return ds_config.DeepSpeedConfig(str(path))
        except Exception as error:
            return error


def linted(path: Path, consumer: Any = "deepspeed") -> Result:
    return lint_file(str(path), RULES, Context(consumer))


@pytest.mark.parametrize(("key", "text"), list(product(KEYS, TEXTS)))
def test_one_value(tmp_path: Path, key: str, text: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(file_with(key, text), encoding="utf-8")
    result, real = linted(path), deepspeed_reads(path)
    at_parse = [finding for finding in result.findings if finding.fails == "parse"]
    assert bool(at_parse) is isinstance(real, Exception), (real, result.findings)
    # What fp16 leaves to the loss scaling of the script is no mistake in the value.
    mistakes = [finding for finding in result.findings if finding.rule != "fp16-loss-not-scaled"]
    assert len(mistakes) <= 1, "one mistake is told once"
    assert not result.unusable


@pytest.mark.parametrize(
    ("text", "on", "severity"),
    [("True", True, "warning"), ("False", True, "error"), ("False,", True, "error"), ("None", True, "error")],
)
def test_a_word_that_switches_on(tmp_path: Path, text: str, on: bool, severity: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(file_with("prescale_gradients", text), encoding="utf-8")
    assert bool(deepspeed_reads(path).prescale_gradients) is on
    (finding,) = linted(path).findings
    assert (finding.rule, finding.severity, finding.fails) == ("unquoted-text", severity, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"train_batch_size": 4,}', '{"train_batch_size": 4} # c', "train_batch_size: 4", "{'train_batch_size': 4}",
        '\ufeff{"train_batch_size": 4}', '{"train_batch_size": 4 "bf16": {}}', '{"train_batch_size": 4\n"bf16": {}}',
        '{"train_batch_size": 4', '{"train_batch_size": 4}}', '{"train_batch_size": 4, "bf16": {"enabled": True}}',
        "train_batch_size: 4\ntensorboard: {\njob_name: '''\n  a\n  b'''\n}", '{"train_batch_size": 4e0}', "", "# c\n",
        '{"train_batch_size": 4, "gradient_clipping": 1e400}', '{"train_batch_size": 4, "gradient_clipping": NaN}',
        '{"train_batch_size": 4, "train_batch_size": 4}', "train_batch_size: 4\ntrain_batch_size: 4", "[4]", "4",
        '{"train_batch_size": 4, "gradient_clipping": Infinity\n}', "{train_batch_size: 4 // c\n, bf16: {}}",
    ],
)  # fmt: skip
def test_whole_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(text, encoding="utf-8")
    refused = isinstance(deepspeed_reads(path), Exception)
    found = linted(path).findings
    assert any(finding.fails == "parse" for finding in found) is refused, found
    try:
        json.loads(text)
    except ValueError:
        for consumer in ("trainer", "accelerate", "lightning"):
            (finding,) = linted(path, consumer).findings
            assert (finding.severity, finding.fails) == ("error", "parse")
            assert finding.rule == ("json-syntax" if text else "unreadable-file")
    else:
        for consumer in ("trainer", "accelerate", "lightning"):
            rules = {finding.rule for finding in linted(path, consumer).findings}
            assert ("json-syntax" in rules) is not isinstance(json.loads(text), dict)


def test_the_reader_that_deepspeed_uses_is_the_one_that_was_compared() -> None:
    assert ds_config.hjson is hjson
