"""Who reads a file, what it fills in, and the files that say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from configs import context_config
from examples import lint_json

from dsconf.cli import main
from dsconf.cli.files import load_launch, load_model, load_training_args
from dsconf.config.context import Consumer, Context, Guess, Launch, Model
from dsconf.document.node import UNKNOWN
from dsconf.document.yaml_reader import load_yaml, scan_yaml

AUTO = '{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 3}}'


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def dsconf(*args: str) -> Result:
    return CliRunner().invoke(main, args)


# --- who reads it ---------------------------------------------------------------------------------------------------

BOTH: tuple[Consumer, ...] = ("trainer", "accelerate")


@pytest.mark.parametrize(
    ("text", "context", "guess"),
    [
        (AUTO, Context(), Guess(BOTH, 'train_batch_size is "auto"')),
        ("{}", Context(training_args={}), Guess(("trainer",), "--training-args is given")),
        (AUTO, Context(launch=Launch("a.yaml")), Guess(BOTH, "--launch-config is given")),
        (AUTO, Context("deepspeed"), None),
        ('{"zero_optimization": {"stage": "auto"}}', Context(), None),
        ('{"foo": "auto", "train_batch_size": 8}', Context(), None),
    ],
)
def test_who_reads_is_guessed(text: str, context: Context, guess: Guess | None) -> None:
    assert context_config(text, context).context.guess == guess


def test_a_guess_is_said() -> None:
    path = write("ds.json", AUTO)
    said = dsconf("lint", "-v", path).stderr
    assert said == (
        'ds.json: read by Trainer or Accelerate (a guess: train_batch_size is "auto"), '
        "for DeepSpeed 0.19.8 (the newest known)\n"
    )
    assert dsconf("lint", path).stderr == ""
    assert (
        "read by Lightning (as --consumer or the settings say)"
        in dsconf("lint", "-v", path, "--consumer", "lightning").stderr
    )
    assert "nothing tells who" in dsconf("lint", "-v", write("n.json", '{"train_batch_size": 8}')).stderr
    assert dsconf("lint", "-v", write("x.json", "{")).stderr == "x.json: not judged\n"


def test_a_guess_makes_no_error() -> None:
    args = write("args.json", '{"per_device_train_batch_size": 2}')
    path = write(
        "ds.json",
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"allgather_bucket_size": "auto"}}',
    )
    for options, severity in (((), "warning"), (("--consumer", "trainer"), "error")):
        _, report = lint_json(path, "--training-args", args, *options)
        found = {finding["rule"]: finding for finding in report["findings"]}
        assert set(found) == {"hf-args-mismatch", "auto-unsupported-key"}
        for finding in found.values():
            assert finding["severity"] == severity
            assert (finding["fails"] == "init") == (severity == "error")
            guessed = ", if Trainer reads this file (--training-args is given)"
            assert (guessed in finding["message"]) == (not options)


# --- what it fills in -----------------------------------------------------------------------------------------------


def test_resolve_shows_what_auto_becomes() -> None:
    args = write("args.yaml", "per_device_train_batch_size: 2\nmax_grad_norm: 0.5\n")
    path = write("ds.json", AUTO)
    done = dsconf("resolve", path, "--training-args", args, "--world-size", "8", "--output-format", "json")
    assert done.stderr == "ds.json: read by Trainer, as --training-args is given\n"
    keys = {row["key"]: row for row in json.loads(done.stdout)["keys"]}
    assert (keys["train_batch_size"]["value"], keys["train_batch_size"]["origin"]) == (16, "filled")
    assert keys["gradient_clipping"]["value"] == 0.5


def test_what_the_number_of_gpus_decides_stays_open() -> None:
    config = context_config(AUTO, Context("trainer", training_args={}))
    assert config.value("train_batch_size") is UNKNOWN
    assert config.value("gradient_clipping") == 1.0


@pytest.mark.parametrize(
    ("args", "open_paths"),
    [
        ({"learning_rate": "1e-4"}, {"optimizer.params.lr"}),
        ({"per_device_train_batch_size": True}, {"train_batch_size"}),
        ({"warmup_ratio": 0.1}, {"scheduler.params.warmup_num_steps"}),
        ({"warmup_steps": 0.1}, {"scheduler.params.warmup_num_steps"}),
        ({"warmup_steps": 0.1, "max_steps": 100}, set()),
        ({"fp16": "yes"}, {"fp16.enabled"}),
        ({"fp16": "yes", "fp16_full_eval": True}, set()),
        ({"adam_beta1": None}, {"optimizer.params.betas"}),
    ],
)
def test_arguments_that_say_nothing_clear_stay_open(args: dict[str, object], open_paths: set[str]) -> None:
    fills = context_config("{}", Context("trainer", 8, training_args=args)).fills
    every = {
        "optimizer.params.lr", "train_batch_size", "scheduler.params.warmup_num_steps", "fp16.enabled",
        "optimizer.params.betas",
    }  # fmt: skip
    assert every - set(fills) == open_paths


def test_filled_values_are_judged() -> None:
    """Not only shown: both precisions, one of them written and one filled."""
    path = write(
        "ds.json",
        '{"train_batch_size": "auto", "fp16": {"enabled": true}, "bf16": {"enabled": "auto"}, "zero_optimization": {}}',
    )
    args = write("args.json", '{"bf16": true, "fp16": true}')
    _, report = lint_json(path, "--consumer", "trainer", "--training-args", args)
    assert [finding["rule"] for finding in report["findings"]] == ["precision-both"]


def test_lightning_fills_nothing() -> None:
    path = write(
        "ds.json", '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}'
    )
    _, report = lint_json(path, "--consumer", "lightning")
    found = {finding["rule"]: finding["message"] for finding in report["findings"]}
    assert set(found) == {"auto-without-resolver", "lightning-gas-key"}
    assert "gradient_accumulation_steps" not in found["auto-without-resolver"]


# --- the files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--training-args", "--launch-config", "--model"])
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "line 1 column 2"),
        ("a.json", "[1]", "the top level is not an object"),
        ("a.yaml", "a: [1", "line 1, column 6"),
        ("a.yml", "- 1", "line 1, column 1: the top level is an array"),
        ("a.yaml", "", "the file is empty"),
        ("a.yaml", "# nothing", "the file holds no keys"),
        ("a.yaml", "a: &x\n  b: *x", "line 2, column 6: *x stands within the value"),
        ("a.yaml", "? [1]\n: 2", "line 1, column 3: a key that is no text"),
    ],
)
def test_bad_files_are_said_with_their_place(option: str, name: str, text: str, said: str) -> None:
    done = dsconf("lint", write("ds.json", AUTO), option, write(name, text))
    assert done.exit_code == 2
    assert option in done.output
    assert f"{name}: " in done.output
    assert said in " ".join(done.output.split())


def test_a_missing_file() -> None:
    done = dsconf("lint", write("ds.json", AUTO), "--training-args", "none.yaml")
    assert done.exit_code == 2
    assert "none.yaml: " in done.output


def test_training_arguments_in_yaml_are_those_of_json() -> None:
    values = {"per_device_train_batch_size": 2, "bf16": True, "learning_rate": 0.1}
    yaml = write("a.yaml", "per_device_train_batch_size: 2\nbf16: yes\nlearning_rate: .1\n")
    assert (
        load_training_args(yaml, load_yaml)
        == load_training_args(write("a.json", json.dumps(values)), load_yaml)
        == values
    )


@pytest.mark.parametrize(
    ("config", "own", "inside"),
    [
        ({"hidden_size": 8}, 8, None),
        ({"hidden_sizes": [4, 16, 8]}, 16, None),
        ({"hidden_size": 8, "hidden_sizes": [16]}, 8, None),
        ({"text_config": {"hidden_size": 4}}, None, 4),
        ({"text_config": {"hidden_sizes": [4, 5]}}, None, 5),
        ({"n_embd": 8, "text_config": None}, None, None),
        ({"hidden_size": "8"}, None, None),
    ],
)
def test_the_size_of_a_model(config: dict[str, object], own: int | None, inside: int | None) -> None:
    model = load_model(write("config.json", json.dumps(config)), load_yaml)
    assert (model.hidden_size, model.text_hidden_size) == (own, inside)


def test_models_that_may_have_a_size_are_left_alone() -> None:
    """Their class knows it by another name, or by default."""
    config = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}'
    for kind in ("gpt2", "t5", "llama", "some-new-model", None):
        path = write("config.json", json.dumps({"model_type": kind}))
        _, report = lint_json(write("ds.json", config), "--consumer", "trainer", "--model", path)
        assert report["findings"] == []
    assert Model(model_type="gpt2").hidden_size is None


def test_the_launch_configuration_knows_the_number_of_processes() -> None:
    yaml = write("a.yaml", "distributed_type: DEEPSPEED\nmixed_precision: no\nnum_processes: 6\n")
    launch = load_launch(yaml, load_yaml, scan_yaml)
    assert (launch.mixed_precision, launch.num_processes, launch.deepspeed) == (False, 6, {})
    path = write(
        "ds.json", '{"train_batch_size": 28, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {}}'
    )
    _, report = lint_json(path, "--consumer", "accelerate", "--launch-config", yaml)
    assert [finding["rule"] for finding in report["findings"]] == ["batch-indivisible"]
    _, report = lint_json(path, "--consumer", "accelerate", "--launch-config", yaml, "--world-size", "7")
    assert report["findings"] == []


def test_a_launch_configuration_for_another_file() -> None:
    text = (
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, deepspeed_config_file: other.json}\n"
    )
    config = write("ds.json", '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}')
    yaml = write("a.yaml", text)
    rules = {}
    for consumer in ("accelerate", "trainer"):
        _, report = lint_json(config, "--consumer", consumer, "--launch-config", yaml)
        found = [finding["rule"] for finding in report["findings"]]
        rules[consumer] = [rule for rule in found if rule.startswith("accelerate-")]
    assert rules == {"accelerate": [], "trainer": ["accelerate-ds-file-conflict"]}


def test_versions_of_other_libraries() -> None:
    path = write("ds.json", '{"train_micro_batch_size_per_gpu": 4}')
    said = dsconf("lint", "-v", path, "--transformers-version", "5.20.0", "--torch-version", "2.13.0").stderr
    assert said.endswith(", transformers 5.20.0 (what the rules say of it was measured with 5.24.0)\n")
    assert "torch" not in said
    for name in ("torch", "accelerate", "transformers"):
        result = dsconf("lint", path, f"--{name}-version", "new")
        assert (result.exit_code, "'new' is no version" in result.stderr) == (2, True)
