"""The rules that judge every key by the key table: which of them speaks, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from configs import config_of

from dsconf.config.context import CONSUMERS, Consumer
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.homes import home_of
from dsconf.lint.index import load_rules

RULES = load_rules()
Config = dict[str, Any]
ZERO = "zero_optimization"


def findings(config: Config, consumer: Consumer | None = None) -> list[Finding]:
    base = {"train_micro_batch_size_per_gpu": 4}
    return lint_config(config_of({**base, **config}, consumer), RULES).findings


def zero(**settings: object) -> Config:
    return {ZERO: {"stage": 3, **settings}}


def said(config: Config, consumer: Consumer | None = None) -> list[tuple[str, str, str | None, str]]:
    return [(f.rule, f.severity, f.fails, f.key) for f in findings(config, consumer)]


def only(config: Config, consumer: Consumer | None = None) -> Finding:
    (finding,) = findings(config, consumer)
    return finding


# ---- removed-key -----------------------------------------------------------------------------------

REMOVED = [name for name, spec in load_keys()["keys"].items() if spec.get("status") == "removed"]


@pytest.mark.parametrize("value", [False, None, {}, "auto"])
def test_all_removed_keys_are_told_at_once(value: object) -> None:
    assert len(REMOVED) >= 10
    config = {**dict.fromkeys(REMOVED, value), **zero(mics_shard_size=value, zeropp_loco_param=value)}
    paths = [*REMOVED, f"{ZERO}.mics_shard_size", f"{ZERO}.zeropp_loco_param"]
    assert said(config) == [("removed-key", "error", "parse", path) for path in paths]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("amp", "bf16"),
        ("elasticity", "train_batch_size"),
        ("nebula", "remove it"),
        ("sparse_gradients", "sparse=True"),
    ],
)
def test_what_takes_the_place_of_a_removed_key(name: str, advice: str) -> None:
    assert advice in (only({name: {}}).help or "")


@pytest.mark.parametrize(("value", "fails"), [(1.0, "init"), (0, "init"), ("1.0", "parse"), (None, "parse")])
def test_a_norm_among_the_parameters_of_the_optimizer(value: object, fails: str) -> None:
    config = {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": value}}}
    assert said(config) == [("max-grad-norm-in-optimizer", "error", fails, "optimizer.params.max_grad_norm")]
    assert "gradient_clipping" in only(config).message


def test_parameters_of_nothing_are_not_judged() -> None:
    """DeepSpeed builds no optimizer without a type, and looks at no parameter."""
    ignored = [("optimizer-without-type", "warning", None, "optimizer")]
    assert said({"optimizer": {"params": {"max_grad_norm": 1, "lr": "x"}}}) == ignored
    assert said({"optimizer": {"params": 5}}) == ignored
    assert said({"optimizer": {"type": "AdamW", "params": {"lr": "x"}}}) == [
        ("invalid-type", "error", "step", "optimizer.params.lr")
    ]


# ---- deprecated-key, deprecated-and-new-key --------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message", "advice"),
    [
        ({ZERO: True}, "ZeRO stage 1", 'write "zero_optimization": {"stage": 1}'),
        ({ZERO: False}, "ZeRO stage 0", 'write "zero_optimization": {"stage": 0}'),
        (zero(cpu_offload=True), "offload_optimizer", 'write "offload_optimizer": {"device": "cpu"}'),
        (zero(cpu_offload=False), "offload_optimizer", "remove it"),
        (zero(cpu_offload=None), "offload_optimizer", "remove it"),
        (zero(cpu_offload_param=True), "offload_param", 'write "offload_param": {"device": "cpu"}'),
        (zero(cpu_offload_use_pin_memory=True), "no effect", "remove it"),
        (
            zero(stage3_gather_fp16_weights_on_model_save=True),
            "stage3_gather_16bit_weights_on_model_save",
            'write "stage3_gather_16bit_weights_on_model_save": true',
        ),
        ({"allgather_size": 5}, "beside the old form", "write zero_optimization.allgather_bucket_size: 5"),
        (zero(legacy_stage1=False), "no longer", "remove it"),
    ],
)
def test_deprecated(config: Config, message: str, advice: str) -> None:
    finding = only(config)
    assert (finding.rule, finding.severity, finding.fails) == ("deprecated-key", "warning", None)
    assert message in finding.message
    assert advice in (finding.help or "")


@pytest.mark.parametrize(("stage", "severity"), [(0, "warning"), (1, "error"), (3, "error")])
def test_the_old_stage_1_stops_a_run_with_zero(stage: int, severity: str) -> None:
    finding = only({ZERO: {"stage": stage, "legacy_stage1": True}})
    assert (finding.severity, finding.fails) == (severity, "init" if severity == "error" else None)


@pytest.mark.parametrize("consumer", [None, *CONSUMERS])
def test_bfloat16(consumer: Consumer | None) -> None:
    """DeepSpeed reads it without a word, the others don't see it."""
    finding = only({"bfloat16": {"enabled": True}, ZERO: {}}, consumer)
    assert finding.severity == ("info" if consumer in (None, "deepspeed") else "warning")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu_offload", "offload_optimizer"),
        ("cpu_offload_param", "offload_param"),
        ("stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"),
        ("stage3_gather_fp16_weights_on_model_save", "gather_16bit_weights_on_model_save"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_an_old_key_beside_the_new_one(old: str, new: str, value: bool) -> None:
    there = {"device": "cpu"} if new.startswith("offload") else True
    finding = only(zero(**{old: value, new: there}))
    assert (finding.rule, finding.severity, finding.fails) == ("deprecated-and-new-key", "error", "parse")
    assert finding.key == f"{ZERO}.{old}"
    assert f'"{new}"' in finding.message
    assert finding.related[0].message == "the new key"
    # What is dropped stands beside nothing.
    assert [f.rule for f in findings(zero(**{old: value, new: "auto"}))] == ["deprecated-key"]
    assert findings(zero(**{old: "auto", new: there})) == []


# ---- both-spellings --------------------------------------------------------------------------------

ALIASES = {name: spec["alias"] for name, spec in load_keys()["keys"][ZERO]["keys"].items() if "alias" in spec}


@pytest.mark.parametrize("name", ALIASES)
def test_both_spellings_of_a_zero_key(name: str) -> None:
    value = load_keys()["keys"][ZERO]["keys"][ALIASES[name]]["default"]
    finding = only(zero(**{name: value, ALIASES[name]: value}))
    assert (finding.rule, finding.severity, finding.fails) == ("both-spellings", "error", "parse")
    assert findings(zero(**{name: value, ALIASES[name]: "auto"})) == []
    assert findings(zero(**{name: "auto", ALIASES[name]: value})) == []
    assert [f.rule for f in findings(zero(**{name: [], ALIASES[name]: value}))] == ["both-spellings"]
    assert [f.rule for f in findings(zero(**{name: [], ALIASES[name]: "auto"}))] == ["invalid-type"]


def test_the_nine_aliases() -> None:
    assert len(ALIASES) == 9


def test_both_spellings_of_bf16() -> None:
    both = {"bf16": {"enabled": True}, "bfloat16": {"enabled": "maybe"}}
    assert said(both) == [("both-spellings", "warning", None, "bf16")]
    assert said({**both, "bf16": None}) == [
        ("deprecated-key", "info", None, "bf16"),
        ("bool-as-string", "error", "parse", "bf16.enabled"),
    ]
    # Of the old spelling DeepSpeed takes no null.
    assert ("invalid-type", "error", "parse", "bf16") in said({"bfloat16": None})
    assert said({"bf16": None}) == []


# ---- misplaced-key ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "severity", "words"),
    [
        (zero(aio={}), "error", '"aio" belongs to the top level'),
        (
            zero(zero_force_ds_cpu_optimizer=True),
            "error",
            '"zero_force_ds_cpu_optimizer" belongs to the top level',
        ),
        ({"stage3_gather_16bit_weights_on_model_save": True}, "warning", "keeps its default false"),
        ({"offload_optimizer": {"device": "cpu"}}, "warning", f'belongs to "{ZERO}"'),
        ({"loss_scale_window": 1000}, "warning", 'belongs to "fp16"'),
        ({"bf16": {"hysteresis": 2}}, "error", '"bf16" refuses it'),
        ({"bf16": {"loss_scale": "auto"}}, "warning", "ignores it silently"),
        (
            {"optimizer": {"type": "AdamW", "lr": 1e-4}},
            "warning",
            "optimizer.params.lr keeps its default 0.001",
        ),
        ({"grad_accum_dtype": "fp32"}, "warning", 'belongs to "data_types"'),
    ],
)
def test_misplaced(config: Config, severity: str, words: str) -> None:
    finding = only(config)
    assert (finding.rule, finding.severity) == ("misplaced-key", severity)
    assert finding.fails == ("parse" if severity == "error" else None)
    assert words in finding.message


def test_no_default_is_in_force_where_the_key_is_written_too() -> None:
    config = {
        "overlap_comm": True,
        **zero(stage3_allgather_sequential=True),
        "stage3_allgather_sequential": True,
    }
    assert not any("default" in finding.message for finding in findings(config))
    assert not any(
        "default" in f.message for f in findings({"gradient_clipping": 1, "gradient_clippping": 2})
    )


@pytest.mark.parametrize(
    ("name", "section", "home"),
    [
        ("aio", ZERO, "aio"),
        ("stage", "", f"{ZERO}.stage"),
        ("prefetch_bucket_size", "", f"{ZERO}.stage3_prefetch_bucket_size"),
        ("hysteresis", "bf16", "fp16.hysteresis"),
        ("lr", "optimizer", "optimizer.params.lr"),
        # One word, and far away.
        ("lr", "", None),
        ("classes", "", None),
        # Known in two sections.
        ("enabled", ZERO, None),
        ("pin_memory", ZERO, None),
        # Removed, or nowhere.
        ("mics_shard_size", "", None),
        ("opt_level", "fp16", None),
    ],
)
def test_home(name: str, section: str, home: str | None) -> None:
    assert home_of(load_keys(), name, section) == home


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "rule", "fails", "message", "advice"),
    [
        (zero(reduce_bucket_size=None), "invalid-type", "parse", "is null, where", "default 500000000"),
        (zero(reduce_bucket_size=[1]), "invalid-type", "parse", "is the list [1], where", "an integer above 0"),
        (zero(overlap_comm={}), "invalid-type", "parse", "is an object, where", "true or false or null"),
        (zero(reduce_bucket_size="x"), "invalid-type", "parse", 'is the text "x", where', "an integer above 0"),
        ({"fp16": {"loss_scale": True}}, "invalid-type", "parse", "is true, where", "a number of 0 or more"),
        ({ZERO: None}, "invalid-type", "parse", "is null", "remove it"),
        ({"gradient_clipping": []}, "invalid-type", "step", "a number", "a number"),
        ({"communication_data_type": "auto"}, "invalid-enum", "parse", '"auto"', '"fp16"'),
        ({"communication_data_type": "float16"}, "invalid-enum", "parse", '"float16"', 'mean "fp16"'),
        ({"communication_data_type": "torch.bfloat16"}, "invalid-enum", "parse", "bfloat16", 'mean "bf16"'),
        (zero(offload_param={"device": "NVMe"}), "invalid-enum", "parse", '"NVMe"', 'mean "nvme"'),
        (zero(stage=4), "invalid-enum", "parse", "0, 1, 2, 3", "one of 0, 1, 2, 3"),
        ({"data_types": {"grad_accum_dtype": "FP32"}}, "invalid-enum", "init", '"FP32"', 'mean "fp32"'),
        (zero(stage3_prefetch_bucket_size=15099494.4), "int-field-fractional", "parse", "15099494.4", "write 15099494"),
        (zero(reduce_bucket_size=0.2), "int-field-fractional", "parse", "0.2", "write 1"),
        (zero(stage=2.5), "int-field-fractional", "parse", "2.5", "write 2"),
        ({"fp16": {"min_loss_scale": 1e-7}}, "int-field-fractional", "parse", "1e-07", "the default is 1"),
        (zero(reduce_bucket_size=0), "out-of-range", "parse", "above 0", "500000000"),
        (zero(reduce_bucket_size=1e30), "out-of-range", "parse", "that 64 bits hold", "500000000"),
        (zero(offload_optimizer={"ratio": 1.5}), "out-of-range", "parse", "from 0 to 1", "1.0"),
        ({"sequence_parallel_size": 0}, "out-of-range", "parse", "above 0", "above 0"),
        ({"wall_clock_breakdown": "true"}, "bool-as-string", "parse", "wants true or false", "write true"),
        ({"bf16": {"enabled": "maybe"}}, "bool-as-string", "parse", '"maybe"', "true or false"),
        ({"prescale_gradients": "false"}, "bool-as-string", None, "takes every text for true", "write false"),
    ],
)  # fmt: skip
def test_wrong_value(config: Config, rule: str, fails: str | None, message: str, advice: str) -> None:
    finding = only(config)
    assert (finding.rule, finding.severity, finding.fails) == (rule, "error", fails)
    assert message in finding.message
    assert advice in (finding.help or "")


@pytest.mark.parametrize(("text", "severity"), [("true", "info"), ("off", "error"), ("maybe", "warning")])
def test_a_text_that_switches_on(text: str, severity: str) -> None:
    assert only({"dump_state": text}).severity == severity
    assert findings({"dump_state": ""}) == []


@pytest.mark.parametrize("consumer", [None, *CONSUMERS])
def test_what_reads_1e3_as_an_integer(consumer: Consumer | None) -> None:
    """DeepSpeed's own reader does, json.load does not; who reads the file is not guessed."""
    config = {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e3}}, ZERO: {}}
    fails = consumer not in (None, "deepspeed")
    assert said(config, consumer) == (
        [("int-field-fractional", "error", "init", "scheduler.params.warmup_num_steps")] if fails else []
    )


@pytest.mark.parametrize("strict", [True, "auto", 1])
def test_a_strict_section_keeps_auto(strict: object) -> None:
    rules = [finding.rule for finding in findings(zero(reduce_bucket_size="auto", strict=strict))]
    assert sorted(rules) == ["invalid-type", "unknown-nested-key"]
    assert findings(zero(reduce_bucket_size="auto")) == []


@pytest.mark.parametrize("value", [True, 1, 3.0, "3"])
def test_what_is_converted_is_not_reported(value: object) -> None:
    assert findings({ZERO: {"stage": value}}) == []
    assert (
        findings({"gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})
        == []
    )
