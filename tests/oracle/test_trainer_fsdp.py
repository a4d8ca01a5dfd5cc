"""Keys of fsdp_config and forms of fsdp, with values of all kinds, against the real TrainingArguments and plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.context import Context
from dsconf.config.effective import Config, Facts
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.formats.trainer.facts import FACTS
from dsconf.formats.trainer.keys import load_keys, table_for
from dsconf.formats.trainer.live import conditions

from .arguing import Outcome, one_machine, outcome

pytestmark = pytest.mark.oracle

VALUES: list[object] = [
    None, True, False, 0, 1, 2, 3, 5, -1, 0.0, 2.0, 2.5, 1e8, 10000, "", "0", "1", "2", "3", "7", " 2 ", "1_0", "1e8",
    "auto", "none", "None", "true", "True", "FALSE", "yes", "off", "y", "enabled", "A,B", "A, B", [], ["A", "B"], [1],
    {}, {"a": 1}, "FULL_SHARD", "shard_grad_op", "TRANSFORMER_BASED_WRAP", "size_based_wrap", "SIZE_BASED_WRAP",
    "NO_WRAP", "BACKWARD_PRE", "backward_post", "no_prefetch", "FULL_STATE_DICT", "sharded_state_dict",
    "LOCAL_STATE_DICT", "cpu",
]  # fmt: skip
VERSIONS: list[dict[str, object]] = [{}, {"version": 1}, {"version": 2}]
FIELDS = {
    "version": "fsdp_version",
    "reshard_after_forward": "reshard_after_forward",
    "activation_checkpointing": "activation_checkpointing",
    "cpu_ram_efficient_loading": "cpu_ram_efficient_loading",
    "forward_prefetch": "forward_prefetch",
    "use_orig_params": "use_orig_params",
    "limit_all_gathers": "limit_all_gathers",
}
"""By key the field of the plugin that has the same value."""
KEYS = [
    name
    for name, spec in load_keys()["keys"]["fsdp_config"]["keys"].items()
    if "alias" not in spec and not name.startswith("xla")
]
BESIDE: dict[str, dict[str, object]] = {"min_num_params": {"auto_wrap_policy": "SIZE_BASED_WRAP"}}


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


def config_of(values: Mapping[str, object]) -> Config:
    document = scan("arguments.json", json.dumps(values))
    return Config(document, table_for(document), Context(), format="trainer")


def facts_of(values: Mapping[str, object]) -> Facts:
    return Facts(config_of(values), FACTS)


def problem(values: Mapping[str, Any], name: str) -> Invalid | None:
    """What the table says against the value of one key of fsdp_config, None where it is good or not read."""
    section = config_of(values).table["keys"]["fsdp_config"]
    found = coerce(section["keys"][name], section["reader"], values["fsdp_config"][name])
    return found if isinstance(found, Invalid) else None


def ours_fails(values: Mapping[str, Any], name: str) -> bool:
    """Whether the table, or a fact that rules judge by, says that it fails while things are set up."""
    found, facts = problem(values, name), facts_of(values)
    return bool(
        (found is not None and found.fails == "init")
        or facts.value("strategy_refused") is True
        or (facts.value("fsdp_version"), facts.value("state_dict_type")) == (2, "LOCAL_STATE_DICT")
    )


def policy_of(plugin: Any) -> str:
    name = getattr(plugin.auto_wrap_policy, "__name__", "")
    return {
        "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
    }.get(name, "NO_WRAP")


def offloads(plugin: Any) -> bool:
    policy = plugin.cpu_offload
    return bool(getattr(policy, "offload_params", type(policy).__name__ == "CPUOffloadPolicy"))


def differences(values: Mapping[str, object], real: Outcome) -> Iterator[tuple[str, object, object]]:
    """What the facts, and the keys that are fields of the plugin, say, and what the plugin has instead."""
    facts, plugin = facts_of(values), real.plugin
    truth = {
        "fsdp_on": True,
        "fsdp_version": plugin.fsdp_version,
        "fsdp_offload": offloads(plugin),
        "wrap_policy": policy_of(plugin),
        "state_dict_type": getattr(plugin.state_dict_type, "name", None),
    }
    if policy_of(plugin) == "SIZE_BASED_WRAP":
        truth["min_num_params"] = plugin.min_num_params
    for name, there in truth.items():
        known = there in (1, 2) if name == "fsdp_version" else there is not None
        said = facts.value(name)
        if said != (there if known else UNKNOWN):
            yield f"fact.{name}", said, there
    live = conditions(values)
    for name, field in FIELDS.items():
        spec = load_keys()["keys"]["fsdp_config"]["keys"][name]
        if spec.get("read_if", "fsdp") in live:
            said, there = facts.config.value(f"fsdp_config.{name}"), getattr(plugin, field)
            if said != there:
                yield name, said, there


@pytest.mark.parametrize("name", KEYS)
def test_every_value_of_a_key(name: str, tmp_path: Path) -> None:
    wrong: list[tuple[object, ...]] = []
    for version in VERSIONS if name != "version" else [{}]:
        for value in VALUES:
            values = {"fsdp": True, "fsdp_config": {**version, **BESIDE.get(name, {}), name: value}}
            real = outcome(values, str(tmp_path))
            if (real.error is not None) != ours_fails(values, name):
                wrong.append((version, value, f"fails: {real.error!r}"))
            elif real.error is None:
                wrong += [(version, value, found) for found in differences(values, real)]
    assert wrong == []


WORDS = [
    "full_shard",
    "shard_grad_op",
    "hybrid_shard",
    "hybrid_shard_zero2",
    "no_shard",
    "offload",
    "auto_wrap",
]
FORMS: list[object] = [
    None, True, False, 0, 1, 2.5, "", " ", "true", "True", "false", *WORDS, *(word.upper() for word in WORDS),
    "full_shard auto_wrap", "full_shard offload auto_wrap", "offload", "full_shard,auto_wrap", "full_shard  auto_wrap ",
    [], *([word] for word in WORDS), ["full_shard", "auto_wrap"], ["Full_Shard"], ["full_shard auto_wrap"], [True], [1],
    {}, {"full_shard": True},
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_form_of_fsdp(version: dict[str, object], tmp_path: Path) -> None:
    wrong: list[tuple[object, ...]] = []
    for form in FORMS:
        for section in (version, {**version, "cpu_offload": False}):
            values = {"fsdp": form, "fsdp_config": section}
            real, facts = outcome(values, str(tmp_path)), facts_of(values)
            if (real.error is not None) != (facts.value("fsdp_problem") != "none"):
                wrong.append((form, section, real.error))
            elif real.error is None and real.plugin is None:
                wrong += [] if facts.value("fsdp_on") is False else [(form, section, "is off")]
            elif real.error is None:
                found = differences(values, real)
                # The words decide that too, and no rule asks for it.
                wrong += [(form, section, each) for each in found if each[0] != "reshard_after_forward"]
    assert wrong == []


def test_arguments_without_fsdp(tmp_path: Path) -> None:
    values = {"learning_rate": 1e-5, "fsdp_config": {"version": 2}}
    assert outcome(values, str(tmp_path))[:2] == (None, None)
    assert facts_of(values).value("fsdp_on") is False


@pytest.mark.parametrize("name", KEYS)
def test_the_prefix_is_another_spelling(name: str, tmp_path: Path) -> None:
    good = {
        "transformer_layer_cls_to_wrap": ["A"],
        "auto_wrap_policy": "NO_WRAP",
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    value = good.get(
        name, 1 if name in ("version", "min_num_params") else "NO_PREFETCH" if "back" in name else True
    )
    beside = {**({} if name == "version" else {"version": 1}), **BESIDE.get(name, {})}
    if name == "reshard_after_forward":
        beside["version"] = 2
    with_, without = (
        outcome(
            {"fsdp": True, "fsdp_config": {**beside, key: value}}, str(tmp_path)
        ).arguments.fsdp_plugin_args
        for key in (f"fsdp_{name}", name)
    )
    assert with_ == without
    spellings = load_keys()["keys"]["fsdp_config"]["keys"]
    assert spellings[f"fsdp_{name}"] == {"alias": name}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_spellings_that_with_the_prefix_counts(order: int, tmp_path: Path) -> None:
    pairs = [("version", 2, 1), ("auto_wrap_policy", "wrong", "NO_WRAP"), ("cpu_offload", True, False)]
    for name, plain, prefixed in pairs:
        section = dict([(name, plain), (f"fsdp_{name}", prefixed)][::order])
        values = {"fsdp": True, "fsdp_config": section}
        real = outcome(values, str(tmp_path))
        assert config_of(values).value(f"fsdp_config.{name}") == prefixed
        assert list(differences(values, real)) == []


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    plain = outcome({"fsdp": True, "fsdp_config": {}}, str(tmp_path)).arguments.fsdp_plugin_args
    section = load_keys()["keys"]["fsdp_config"]
    for name in (*section["mistaken"], "sharding_strategy", "activation_checkpointing_offload", "vresion"):
        found = outcome({"fsdp": True, "fsdp_config": {name: True}}, str(tmp_path)).arguments.fsdp_plugin_args
        assert name not in section["keys"]
        assert found == plain, name


def test_removed_arguments(tmp_path: Path) -> None:
    removed = [name for name, spec in load_keys()["keys"].items() if spec.get("status") == "removed"]
    assert removed
    for name in removed:
        assert isinstance(outcome({name: None}, str(tmp_path)).error, TypeError), name


_MADE = ("fsdp_config", "deepspeed", "accelerator_config")
"""Arguments of which TrainingArguments makes objects, also of None."""


def test_the_other_arguments_are_arguments(tmp_path: Path) -> None:
    """With the defaults of the table."""
    arguments = outcome({}, str(tmp_path)).arguments
    given = {"output_dir", "activation_checkpointing"}
    for name, spec in load_keys()["keys"].items():
        if spec.get("status") == "removed" or name in given:
            continue
        name = spec.get("alias", name)
        if name not in given and "default" in spec and name not in _MADE:
            assert getattr(arguments, name) == spec["default"], name


def test_checkpointing_by_its_old_name(tmp_path: Path) -> None:
    for old, new in ((True, None), (None, True), (True, False), (False, True)):
        given = {"gradient_checkpointing": old, "activation_checkpointing": new}
        written = {name: value for name, value in given.items() if value is not None}
        real = outcome(written, str(tmp_path)).arguments.activation_checkpointing
        assert config_of(written).value("activation_checkpointing") is real, written
