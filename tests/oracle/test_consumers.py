"""What Trainer and Accelerate make of a DeepSpeed config, against the rules on it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from configs import context_config

from dsconf.cli.files import load_launch
from dsconf.config.context import Context, Launch, Model
from dsconf.config.tables import Spec
from dsconf.document.yaml_reader import load_yaml, scan_yaml
from dsconf.formats.accelerate.fill import SIZES, by_size
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.trainer.hidden import INSIDE, NONE
from dsconf.formats.training.defaults import DEFAULTS
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .judge import Config, deepspeed, read, torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.oracle
hf = importlib.import_module("transformers.integrations.deepspeed")
TrainingArguments = importlib.import_module("transformers").TrainingArguments
plugins = importlib.import_module("accelerate.utils.dataclasses")

RULES = load_rules()
Z = "zero_optimization"
BASE: Config = {"train_micro_batch_size_per_gpu": 1, Z: {"stage": 2}}
HIDDEN = 64
ONE: Config = {"per_device_train_batch_size": 1}
"""Training arguments that agree with BASE."""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("ACCELERATE_"):
            monkeypatch.delenv(name)
    yield
    hf.unset_hf_deepspeed_config()


def said(rule: str, config: Config, context: Context) -> list[Finding]:
    found = lint_config(context_config(config, context), RULES).findings
    return [finding for finding in found if finding.rule == rule]


def put(config: Config, path: str, value: object) -> Config:
    config = copy.deepcopy(config)
    node = config
    *above, last = path.split(".")
    for key in above:
        node = node.setdefault(key, {})
    node[last] = value
    return config


# --- Trainer's arguments -------------------------------------------------------------------------------------------


def arguments(given: Config, world_size: int) -> Any:
    """What trainer_config_process reads of TrainingArguments, without a device."""
    values = {field.name: field.default for field in dataclasses.fields(TrainingArguments)} | given
    stub = SimpleNamespace(**values, world_size=world_size)
    stub.get_warmup_steps = lambda steps: TrainingArguments.get_warmup_steps(stub, steps)
    return stub


def trainer(config: Config, given: Config, world_size: int, model: Any = None, steps: int = 100) -> Any:
    """The config as Trainer completes it, or the text of its ValueError."""
    args = arguments(given, world_size)
    holder = hf.HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    holder.trainer_config_process(args)
    steps = args.max_steps if args.max_steps > 0 else steps
    try:
        holder.trainer_config_finalize(args, model or SimpleNamespace(), steps)
    except ValueError as error:
        return str(error)
    return holder.config


def test_defaults_are_those_of_training_arguments() -> None:
    real = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    assert {name: real[name] for name in DEFAULTS} == DEFAULTS


GIVEN: list[Config] = [
    {},
    {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "learning_rate": 1e-4, "bf16": True},
    {"max_grad_norm": 0.5, "weight_decay": 0.1, "adam_beta2": 0.95, "adam_epsilon": 1e-6, "fp16": True},
    {"warmup_steps": 0.1, "max_steps": 200, "fp16_full_eval": True, "max_grad_norm": 1},
    {"warmup_steps": 7.5, "max_steps": 0, "bf16_full_eval": True},
    {"warmup_steps": 500, "max_steps": 1000, "learning_rate": 0.001},
]
VALUES: dict[str, list[object]] = {
    "train_micro_batch_size_per_gpu": [2, 8, 8.0, "8", None, True],
    "gradient_accumulation_steps": [1, 4, "auto", None],
    "train_batch_size": [8, 16, 64, "64"],
    "gradient_clipping": [0, 0.5, 1, 1.0, "1.0", None],
    "optimizer.params.lr": [5e-5, "5e-5", 1e-4, 0.001, "auto"],
    "optimizer.params.betas": [[0.9, 0.999], [0.9, 0.95], "auto", [0.9], 0.9, {}],
    "optimizer.params.eps": [1e-8, 1e-6, "1e-8"],
    "optimizer.params.weight_decay": [0, 0.0, 0.1, 0.01],
    "scheduler.params.warmup_min_lr": [0, 1e-6],
    "scheduler.params.warmup_max_lr": [5e-5, 1e-4, "auto"],
    "scheduler.params.total_num_steps": [200, 1000, "auto"],
    "scheduler.params.warmup_num_steps": [0, 1, 7, 20, 500, "auto"],
    "fp16.enabled": [True, False, 1, 0, "true", "auto"],
    "bf16.enabled": [True, False, "auto"],
    "bfloat16.enabled": [True],
}
CASES = [
    (put(BASE, path, value), given, world)
    for (path, values), given, world in itertools.product(VALUES.items(), GIVEN, (1, 4))
    for value in values
]


def mentioned(text: object) -> list[str]:
    return sorted(re.findall(r"^- ds (\S+?)=", text, re.MULTILINE)) if isinstance(text, str) else []


def test_differences_are_those_that_trainer_names() -> None:
    """Where the number of steps is open, Trainer counts them: here they are given wherever they matter."""
    seen = 0
    for config, given, world in CASES:
        real = mentioned(trainer(config, given, world))
        context = Context("trainer", world, training_args=given)
        ours = sorted(finding.key for finding in said("hf-args-mismatch", config, context))
        if given.get("max_steps", -1) <= 0:
            real = [path for path in real if path != "scheduler.params.total_num_steps"]
        assert ours == real, (config, given, world)
        seen += len(real)
    assert seen > 100


def test_all_differences_at_once() -> None:
    config = copy.deepcopy(BASE)
    for path, values in VALUES.items():
        config = put(config, path, values[0])
    context = Context("trainer", 3, training_args={"learning_rate": 0.1})
    ours = sorted(finding.key for finding in said("hf-args-mismatch", config, context))
    real = mentioned(trainer(config, {"learning_rate": 0.1}, 3))
    assert ours == [path for path in real if path != "scheduler.params.total_num_steps"]
    assert len(ours) > 5


@pytest.mark.parametrize("given", GIVEN, ids=json.dumps)
@pytest.mark.parametrize("stage", [2, 3])
def test_what_auto_becomes(given: Config, stage: int) -> None:
    config: Config = {Z: {"stage": stage}}
    for path in (*VALUES, *(f"{Z}.{name}" for name in SIZES)):
        if not path.startswith("bfloat16"):
            config = put(config, path, "auto")
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
    real = trainer(config, given, 4, model)
    context = Context("trainer", 4, training_args=given, model=Model(hidden_size=HIDDEN))
    fills = context_config(config, context).fills
    leaves = [(path, get(real, path)) for path in fills if is_auto(config, path)]
    assert len(leaves) > 12
    for path, value in leaves:
        # Below stage 3 Trainer leaves two sizes to Accelerate, with the same formulas.
        expected = value if value != "auto" else by_size(HIDDEN)[path]
        assert fills[path] == expected, path


def get(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


def is_auto(config: Any, path: str) -> bool:
    try:
        return bool(get(config, path) == "auto")
    except KeyError:
        return False


# --- "auto" that is left --------------------------------------------------------------------------------------------


def leaves(node: Spec, above: str = "") -> list[str]:
    found: list[str] = []
    for name, spec in node["keys"].items():
        path = f"{above}.{name}" if above else name
        found += leaves(spec, path) if "keys" in spec else [path]
    return found


PREPARED = {
    "gradient_clipping": 1.0,
    f"{Z}.stage3_gather_16bit_weights_on_model_save": False,
    "train_micro_batch_size_per_gpu": 1,
    "train_batch_size": 1,
    "optimizer.params.lr": 0.1,
    "optimizer.params.weight_decay": 0.1,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 0.1,
    "scheduler.params.warmup_num_steps": 1,
    "scheduler.params.total_num_steps": 10,
    **by_size(HIDDEN),
}
"""What Accelerator._prepare_deepspeed passes, with a DummyOptim, a DummyScheduler and a model with a hidden size."""


def prepared(config: Config, consumer: str) -> str | None:
    """The text of the ValueError with which Accelerate stops at an "auto", None where none is left."""
    source: Any = config
    if consumer == "trainer":
        source = hf.HfTrainerDeepSpeedConfig(copy.deepcopy(config))
        args = arguments(ONE, 1)
        source.trainer_config_process(args)
    plugin = plugins.DeepSpeedPlugin(hf_ds_config=source)
    plugin.set_mixed_precision("no")
    if consumer == "trainer":
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
        source.trainer_config_finalize(args, model, 100)
    plugin.fill_match("gradient_accumulation_steps", must_match=False, gradient_accumulation_steps=1)
    try:
        plugin.deepspeed_config_process(must_match=False, **PREPARED)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("consumer", ["trainer", "accelerate"])
def test_auto_is_filled_or_refused(consumer: Any) -> None:
    base = put(put(BASE, "optimizer.type", "AdamW"), "scheduler.type", "WarmupDecayLR")
    others = ["foo", "wandb.foo", "bfloat16.enabled", f"{Z}.prefetch_bucket_size", "optimizer.params.foo"]
    paths = [path for path in leaves(load_keys()) if "*" not in path and "[]" not in path] + others
    refused = 0
    for path in paths:
        if path in ("optimizer.type", "scheduler.type"):
            continue
        config = put(base, path, "auto")
        real = prepared(config, consumer)
        ours = said("auto-unsupported-key", config, Context(consumer, 1))
        assert [finding.key for finding in ours] == ([path] if real else []), (path, real)
        assert real is None or f"`{path}` not found in kwargs" in real
        refused += real is not None
    assert 200 < refused < len(paths) - 15


def test_auto_in_a_list_is_no_matter() -> None:
    config = put(BASE, "compression_training.foo", ["auto", {"bar": "auto"}])
    assert prepared(config, "accelerate") is None
    assert said("auto-unsupported-key", config, Context("accelerate", 1)) == []


# --- the size of the model -----------------------------------------------------------------------------------------


def test_models_without_a_size() -> None:
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING

    def sized(config: Any) -> bool:
        return hasattr(config, "hidden_size") or hasattr(config, "hidden_sizes")

    none: set[str] = set()
    inside: set[str] = set()
    for name, kind in mapping.items():
        try:
            config = kind()
        except Exception:
            continue  # some can't be made without arguments, or without another library
        if not sized(config):
            (inside if sized(getattr(config, "text_config", None)) else none).add(name)
    assert (none, inside) == (set(NONE), set(INSIDE))


LLAVA = Model(model_type="llava", text_hidden_size=HIDDEN)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("inside", [True, False])
def test_the_size_that_trainer_looks_for(stage: int, name: str, inside: bool) -> None:
    """In a text_config too; what it does not fill below stage 3 comes to Accelerate, which does not look there."""
    config = put({**BASE, Z: {"stage": stage}}, f"{Z}.{name}", "auto")
    size = {"text_config": SimpleNamespace(hidden_size=HIDDEN)} if inside else {}
    real = trainer(config, ONE, 1, SimpleNamespace(config=SimpleNamespace(**size)))
    model = LLAVA if inside else Model(model_type="musicgen")
    ours = said("auto-needs-hidden-size", config, Context("trainer", 1, model=model))
    refuses = isinstance(real, str) or get(real, f"{Z}.{name}") == "auto"
    assert bool(ours) == refuses


# --- Accelerate's plugin -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [{}, {Z: {}}, {Z: None}, {Z: {"stage": 0}}], ids=json.dumps)
def test_a_section_zero_optimization_has_to_be_there(zero: Config) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, **zero}
    try:
        plugins.DeepSpeedPlugin(hf_ds_config=copy.deepcopy(config))
        refused = ""
    except ValueError as error:
        refused = str(error)
    for consumer in ("trainer", "accelerate"):
        assert bool(said("accelerate-needs-zero-block", config, Context(consumer, 1))) == bool(refused)
    assert "specify the ZeRO optimization" in refused or Z in zero


FIELDS: Config = {
    "zero_stage": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "offload_optimizer_nvme_path": "none",
    "offload_param_nvme_path": "none",
    "zero3_save_16bit_model": False,
    "zero3_init_flag": False,
    "deepspeed_moe_layer_cls_names": "A",
    "deepspeed_multinode_launcher": "standard",
    "deepspeed_hostfile": "hosts",
}


@pytest.mark.parametrize("field", [*FIELDS, "mixed_precision"])
def test_what_may_stand_beside_the_file(field: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Launched as `accelerate launch` does, up to the environment of the workers."""
    command = importlib.import_module("accelerate.commands.launch")
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(BASE))
    section = {"deepspeed_config_file": str(path)} | ({field: FIELDS[field]} if field in FIELDS else {})
    values = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "num_processes": 2,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": False,
        "deepspeed_config": section,
    } | ({"mixed_precision": "bf16"} if field == "mixed_precision" else {})
    yaml = tmp_path / "accelerate.yaml"
    yaml.write_text(json.dumps(values))
    monkeypatch.setattr(command, "is_bf16_available", lambda *_: True)
    args = command.launch_command_parser().parse_args(["--config_file", str(yaml), "train.py"])
    passed: list[str] = []
    monkeypatch.setattr(
        command,
        "deepspeed_launcher",
        lambda args: passed.append(args.deepspeed_fields_from_accelerate_config),
    )
    command.launch_command(args)
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", passed[0])
    try:
        plugins.DeepSpeedPlugin(hf_ds_config=str(path))
        refused = ""
    except ValueError as error:
        refused = str(error)
    context = Context("trainer", 2, launch=load_launch(str(yaml), load_yaml, scan_yaml))
    assert bool(said("accelerate-ds-file-conflict", BASE, context)) == bool(refused)
    assert ("will be ignored" in refused) == (field not in list(FIELDS)[8:])


@pytest.mark.parametrize("wanted", ["no", "fp16", "bf16", "fp8"])
@pytest.mark.parametrize(
    "sections",
    [{}, {"fp16": True}, {"bf16": True}, {"bf16": False}, {"fp16": False}, {"fp16": "auto"}],
    ids=json.dumps,
)
def test_precision_of_the_launcher(wanted: str, sections: Config) -> None:
    config = {**BASE, **{name: {"enabled": enabled} for name, enabled in sections.items()}}
    plugin = plugins.DeepSpeedPlugin(hf_ds_config=copy.deepcopy(config))
    try:
        plugin.set_mixed_precision(wanted)
        refused = ""
    except ValueError as error:
        refused = str(error)
    context = Context("accelerate", 1, launch=Launch("a.yaml", "DEEPSPEED", wanted))
    assert bool(said("accelerate-precision-conflict", config, context)) == ("cannot be set" in refused)
    ours = context_config(config, context)
    if not refused:
        got = {
            name for name in ("fp16", "bf16") if plugin.deepspeed_config.get(name, {}).get("enabled") is True
        }
        asked = {"no": set(), "fp8": {"bf16"}}.get(wanted, {wanted})
        overruled = said("accelerate-precision-overruled", config, context)
        assert bool(overruled) == (got != asked and wanted != "fp8"), (got, asked)
    for name, enabled in sections.items():
        if enabled == "auto" and not refused:
            assert ours.value(f"{name}.enabled") == plugin.deepspeed_config[name]["enabled"]


@pytest.mark.parametrize("given", [{}, {"bf16": True}, {"fp16": True}], ids=json.dumps)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_alias_of_bf16(given: Config, enabled: bool) -> None:
    config = {**BASE, "bfloat16": {"enabled": enabled}}
    holder = hf.HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    holder.trainer_config_process(arguments(given, 1))
    plugin = plugins.DeepSpeedPlugin(hf_ds_config=holder)
    plugin.set_mixed_precision("bf16" if given.get("bf16") else "fp16" if given.get("fp16") else "no")
    plugin.deepspeed_config.pop("steps_per_print")
    result = read(plugin.deepspeed_config)
    assert result.bfloat16_config.enabled == given.get("bf16", False)
    ours = said("alias-section-unread", config, Context("trainer", 1, training_args=given))
    assert bool(ours) == (enabled and not result.bfloat16_config.enabled)


def test_what_is_written_over() -> None:
    plugin = plugins.DeepSpeedPlugin(hf_ds_config={**BASE, "steps_per_print": 5})
    assert plugin.deepspeed_config["steps_per_print"] == float("inf")
    assert [
        f.key for f in said("overwritten-key", {**BASE, "steps_per_print": 5}, Context("accelerate"))
    ] == ["steps_per_print"]


@pytest.mark.parametrize("optimizer", [{}, {"optimizer": {"type": "AdamW", "params": {}}}], ids=json.dumps)
@pytest.mark.parametrize("scheduler", [{}, {"scheduler": {"type": "WarmupLR", "params": {}}}], ids=json.dumps)
def test_sections_take_the_place_of_arguments(optimizer: Config, scheduler: Config) -> None:
    config = {**BASE, **optimizer, **scheduler, "zero_allow_untested_optimizer": False}
    holder = hf.HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    asked: list[str] = []
    stub = SimpleNamespace(create_optimizer=lambda: asked.append("optim"))
    _, schedule = hf.deepspeed_optim_sched(stub, holder, None, 10, [])
    context = Context("trainer", 1, training_args={"optim": "adafactor", "lr_scheduler_type": "polynomial"})
    assert bool(said("optimizer-overrides-args", config, context)) == ("optim" not in asked)
    replaced = schedule is not None and schedule.lr_scheduler_callable is None
    assert bool(said("scheduler-overrides-args", config, context)) == replaced
    forced = holder.config["zero_allow_untested_optimizer"]
    assert bool(said("overwritten-key", config, context)) == forced


# --- DeepSpeed by itself -------------------------------------------------------------------------------------------

ALONE = {
    "train_batch_size": "parse",
    "train_micro_batch_size_per_gpu": "parse",
    "gradient_accumulation_steps": "parse",
    "gradient_clipping": "step",
    "optimizer.params.lr": "step",
    "optimizer.params.betas": "step",
    "optimizer.params.eps": "step",
    "optimizer.params.weight_decay": "step",
    "scheduler.params.warmup_min_lr": "init",
    "scheduler.params.warmup_max_lr": "init",
    "scheduler.params.warmup_num_steps": "init",
    "scheduler.params.total_num_steps": "init",
    "fp16.enabled": None,
    "bf16.enabled": None,
    f"{Z}.reduce_bucket_size": None,
    f"{Z}.stage": None,
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("path", ALONE)
def test_auto_in_deepspeed_alone(path: str) -> None:
    """When the text stops it; where it does not, the precision is off."""
    base = put(put(BASE, "optimizer.type", "AdamW"), "optimizer.params.lr", 0.1)
    if path.startswith("scheduler"):
        base = put(base, "scheduler", {"type": "WarmupDecayLR", "params": {"total_num_steps": 10}})
    config = put(base, path, "auto")
    (ours,) = said("auto-without-resolver", config, Context("deepspeed", 1))
    assert ours.fails == ALONE[path] == stops(config)
    silent = {"fp16.enabled": "warning", "bf16.enabled": "warning", f"{Z}.stage": "warning"}
    assert ours.severity == silent.get(path, "error" if ours.fails else "info")


SCHEDULES: list[Config] = [
    {"type": "WarmupLR", "params": {}},
    {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1}},
    {"type": "WarmupDecayLR", "params": {"total_num_steps": 10}},
    {"type": "WarmupCosineLR", "params": {"total_num_steps": 10}},
    {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}},
    {"type": "LRRangeTest", "params": {}},
]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=json.dumps)
def test_a_schedule_may_put_a_rate_of_its_own(schedule: Config) -> None:
    config = {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": schedule}
    moments = [finding.fails for finding in said("auto-without-resolver", config, Context("deepspeed", 1))]
    assert moments == [moment for moment in [stops(config)] if moment]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("name", ["lr", "betas", "eps", "weight_decay"])
@pytest.mark.parametrize("torch_adam", [True, False])
def test_optimizers_look_at_their_arguments_at_once_or_later(name: str, torch_adam: bool) -> None:
    params = {"lr": 0.1, "torch_adam": torch_adam, name: "auto"}
    config = {**BASE, "optimizer": {"type": "AdamW", "params": params}}
    (ours,) = said("auto-without-resolver", config, Context("deepspeed", 1))
    assert ours.fails == stops(config)


def stops(config: Config) -> str | None:
    """When DeepSpeed stops, None where it trains (in fp32)."""
    if isinstance(read(config), Exception):
        return "parse"
    model = torch.nn.Linear(4, 4)
    try:
        engine = deepspeed.initialize(
            model=model, config=copy.deepcopy(config), model_parameters=list(model.parameters())
        )[0]
    except Exception:
        return "init"
    try:
        engine.backward(engine(torch.ones(1, 4)).sum())
        engine.step()
    except Exception:
        return "step"
    assert next(engine.module.parameters()).dtype == torch.float32
    return None


# --- YAML ----------------------------------------------------------------------------------------------------------

SCALARS = [
    "no", "No", "nO", "yes", "on", "OFF", "true", "y", "~", "null", "Null", "", "1", "-1", "+1", "010", "08", "0o10",
    "0x1F", "0b11", "1_000", "5e8", "1e-5", "1.0e+5", "1.0e5", "1.", ".5", "-.5", ".inf", "-.INF", ".nan", "'no'",
    '"1"', "1.5", "a b", "auto", "-", "--1", "1e", "0.0",
]  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_as_pyyaml_reads_them(text: str) -> None:
    yaml = importlib.import_module("yaml")
    try:
        real = yaml.safe_load(f"a: {text}")
    except yaml.YAMLError:
        with pytest.raises(ValueError, match="line 1"):
            load_yaml(f"a: {text}")
        return
    assert repr(load_yaml(f"a: {text}")) == repr(real)


@pytest.mark.parametrize(
    "text",
    ["a: &x {b: 1}\nc: *x", "a: &x {b: 1}\nc: {<<: *x, d: 2}", "a: [1, [2, no]]", "a:", "{a: {b: [c]}}"],
)
def test_structures_as_pyyaml_reads_them(text: str) -> None:
    assert load_yaml(text) == importlib.import_module("yaml").safe_load(text)
