"""Files for FSDP1 become files for FSDP2 where they stand."""

from __future__ import annotations

import pytest
from translated import accelerate_config, accelerate_reading, complaints, labels_of, unlanded

from dsconf.config.context import Context
from dsconf.document.edit import EditError
from dsconf.document.yaml_reader import scan_yaml
from dsconf.formats.accelerate.in_place import Edited, to_fsdp2
from dsconf.plan import Wrapping

ONE = ("num_processes: 8",)
TWO = ("num_machines: 2", "num_processes: 16", "main_process_ip: 10.0.0.1")
WRAP = "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # blocks"
FULL = "fsdp_state_dict_type: FULL_STATE_DICT"
GROUPS = {
    "parallelism_config_dp_replicate_size": 2,
    "parallelism_config_dp_shard_size": 8,
}
ANY = Context()


def parse(text: str):  # type: ignore[no-untyped-def]
    return scan_yaml("accelerate.yaml", text)


def edited(text: str, context: Context = ANY) -> Edited:
    config = accelerate_config(text, context)
    return to_fsdp2(config, labels_of(accelerate_reading(text, context)), parse)


def file_of(*section: str, rest: tuple[str, ...] = ONE, end: str = "\n") -> str:
    lines = [
        "# My run",
        "compute_environment: LOCAL_MACHINE",
        "distributed_type: FSDP  # sharded",
        "fsdp_config:",
    ]
    lines += [f"  {line}" for line in section]
    lines += ["mixed_precision: bf16", *rest, ""]
    return end.join(lines)


def settings(text: str) -> dict[str, object]:
    found = parse(text).root.plain()
    assert isinstance(found, dict)
    return found


ROWS = {
    "full": (("fsdp_sharding_strategy: FULL_SHARD", WRAP, FULL), ONE, True, None),
    "gradients": (("fsdp_sharding_strategy: SHARD_GRAD_OP", WRAP, FULL), ONE, False, None),
    "hybrid": (("fsdp_sharding_strategy: HYBRID_SHARD", WRAP, FULL), TWO, True, GROUPS),
    "hybrid zero2": (("fsdp_sharding_strategy: HYBRID_SHARD_ZERO2", WRAP, FULL), TWO, False, GROUPS),
    "hybrid on one machine": (("fsdp_sharding_strategy: HYBRID_SHARD", WRAP, FULL), ONE, True, None),
    "lower case": (("fsdp_sharding_strategy: shard_grad_op", WRAP, FULL), ONE, False, None),
    "number 1": (("fsdp_sharding_strategy: 1  # all", WRAP, FULL), ONE, True, None),
    "number 2": (("fsdp_sharding_strategy: 2", WRAP, FULL), ONE, False, None),
    "number 4": (("fsdp_sharding_strategy: 4", WRAP, FULL), TWO, True, GROUPS),
    "both keys": (
        ("fsdp_sharding_strategy: SHARD_GRAD_OP", "fsdp_reshard_after_forward: FULL_SHARD", WRAP, FULL),
        ONE,
        False,
        None,
    ),
    "both keys the other way round": (
        ("fsdp_reshard_after_forward: FULL_SHARD", "fsdp_sharding_strategy: SHARD_GRAD_OP", WRAP, FULL),
        ONE,
        False,
        None,
    ),
    "the key of FSDP2 alone": (("fsdp_reshard_after_forward: SHARD_GRAD_OP", WRAP, FULL), ONE, True, None),
    "no prefix": (("version: 1", "sharding_strategy: SHARD_GRAD_OP", "use_orig_params: false"), ONE, False, None),
    "twins": (("sharding_strategy: SHARD_GRAD_OP", "fsdp_sharding_strategy: FULL_SHARD", WRAP, FULL), ONE, True, None),
    "local": (("fsdp_sharding_strategy: FULL_SHARD", "fsdp_state_dict_type: LOCAL_STATE_DICT", WRAP), ONE, True, None),
    "by size": (
        ("fsdp_auto_wrap_policy: SIZE_BASED_WRAP", "fsdp_min_num_params: 1000", "fsdp_sharding_strategy: 1"),
        ONE,
        True,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ROWS)
def test_each_strategy(name: str, end: str) -> None:
    section, rest, reshards, layout = ROWS[name]
    text = file_of(*section, rest=rest, end=end)
    after = edited(text)
    plan = accelerate_reading(after.text).plan
    assert plan.sharding.reshard_after_forward is reshards
    assert settings(after.text).get("parallelism_config") == layout
    assert accelerate_reading(after.text).source == "accelerate-fsdp2"
    assert complaints("accelerate.yaml", after.text) == []
    assert after.text.count("\r") == (after.text.count("\n") if end == "\r\n" else 0)
    assert unlanded(after.reading, after.landings) == []
    for line in text.splitlines():
        if "#" in line:
            assert line[line.index("#") :] in after.text
    kept = [line for line in text.splitlines() if line in after.text.splitlines()]
    assert [line for line in after.text.splitlines() if line in kept] == kept


def test_values_change_where_they_stand() -> None:
    text = file_of(
        "fsdp_version: 1",
        "fsdp_sharding_strategy: SHARD_GRAD_OP  # ZeRO-2",
        "fsdp_use_orig_params: true",
        FULL,
    )
    assert edited(text).text == file_of(
        "fsdp_version: 2", "fsdp_reshard_after_forward: false  # ZeRO-2", FULL
    )


def test_whole_weights_stay_whole() -> None:
    """FSDP1 gathers them where nothing is said, FSDP2 does not."""
    text = edited(file_of("fsdp_sharding_strategy: FULL_SHARD", WRAP)).text
    assert "fsdp_state_dict_type: FULL_STATE_DICT" in text


def test_no_shard_becomes_ddp() -> None:
    text = file_of("# nothing is sharded", "fsdp_sharding_strategy: NO_SHARD  # as DDP", WRAP)
    after = edited(text)
    assert settings(after.text)["distributed_type"] == "MULTI_GPU"
    assert "fsdp_config" not in settings(after.text)
    for comment in ("# nothing is sharded", "# as DDP", "# blocks", "# sharded", "# My run"):
        assert comment in after.text
    assert complaints("accelerate.yaml", after.text) == []


def test_no_shard_of_one_process_is_no_ddp() -> None:
    after = edited(file_of("fsdp_sharding_strategy: NO_SHARD", rest=("num_processes: 1",)))
    assert settings(after.text)["distributed_type"] == "NO"


def test_a_file_for_fsdp2_loses_what_fsdp2_does_not_read() -> None:
    text = file_of(
        "fsdp_version: 2",
        "fsdp_sharding_strategy: SHARD_GRAD_OP",
        "fsdp_backward_prefetch: BACKWARD_PRE",
        WRAP,
    )
    after = edited(text)
    assert after.text == file_of("fsdp_version: 2", WRAP)
    told = next(item for item in after.reading.items if item.key == "fsdp_config.sharding_strategy")
    assert told.target == "removed"
    assert "reshard_after_forward, which is true" in told.note


def test_a_file_for_fsdp2_stays_as_it_is() -> None:
    text = file_of("fsdp_version: 2", WRAP)
    assert edited(text).text == text


@pytest.mark.parametrize(
    "section",
    [
        ("fsdp_version: 1", "fsdp_auto_wrap_policy: NO_WRAP"),
        ("fsdp_auto_wrap_policy: SIZE_BASED_WRAP", "fsdp_min_num_params: 1000"),
        (WRAP, "fsdp_transformer_layer_cls_to_wrap: A"),
        ("fsdp_version: 2", "fsdp_auto_wrap_policy: NO_WRAP"),
        ("fsdp_version: 2", WRAP, "fsdp_transformer_layer_cls_to_wrap: A"),
        ("fsdp_version: 2", "fsdp_auto_wrap_policy: NO_WRAP", "fsdp_transformer_layer_cls_to_wrap: A"),
    ],
)
def test_classes_that_somebody_names_are_written(section: tuple[str, ...]) -> None:
    text = file_of(*section)
    config = accelerate_config(text)
    after = to_fsdp2(config, labels_of(accelerate_reading(text)), parse, ("B", "C"))
    assert accelerate_reading(after.text).plan.wrapping == Wrapping(
        block_classes=("B", "C"), separate_ends=True
    )
    assert complaints("accelerate.yaml", after.text) == []
    assert after.landings["wrapping.block_classes"].target == "transformer_layer_cls_to_wrap: B,C"
    told = {item.key: item for item in after.reading.items}
    held = told.get("fsdp_config.transformer_layer_cls_to_wrap")
    assert held is None or (held.outcome, "B,C" in held.target, held.note) == ("exact", True, "")
    assert unlanded(after.reading, after.landings) == []


def test_what_nobody_reads_stays_beside_the_classes_that_somebody_names() -> None:
    text = file_of("fsdp_version: 2", WRAP, "fsdp_min_num_params: 1000")
    after = to_fsdp2(accelerate_config(text), {}, parse, ("B",))
    assert "fsdp_min_num_params: 1000\n" in after.text


def test_braces_stay_braces() -> None:
    section = "{fsdp_sharding_strategy: 2, fsdp_use_orig_params: true}"
    text = f"distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {section}\n"
    after = edited(text).text
    assert after.count("\n") == 3
    assert "{fsdp_reshard_after_forward: false, " in after


@pytest.mark.parametrize("section", ["", "fsdp_config:\n", "fsdp_config: {}\n"])
def test_a_section_that_says_nothing_is_filled(section: str) -> None:
    after = edited(f"distributed_type: FSDP\nnum_processes: 8\n{section}").text
    assert accelerate_reading(after).source == "accelerate-fsdp2"
    assert accelerate_reading(after).plan.sharding.partition == "parameters"


def test_hybrid_shard_needs_the_number_of_gpus() -> None:
    text = file_of("fsdp_sharding_strategy: HYBRID_SHARD", rest=("num_machines: 2",))
    with pytest.raises(EditError, match="--gpus-per-node"):
        edited(text)
    known = Context(world_size=16, gpus_per_node=8)
    assert settings(edited(text, known).text)["parallelism_config"] == GROUPS


def test_hybrid_shard_needs_ranks_that_divide_into_machines() -> None:
    with pytest.raises(EditError, match="groups of 8"):
        edited(
            file_of("fsdp_sharding_strategy: HYBRID_SHARD", rest=TWO), Context(world_size=12, gpus_per_node=8)
        )


def test_a_layout_that_is_there_gets_the_copies() -> None:
    layout = ("parallelism_config:", "  parallelism_config_dp_replicate_size: 1  # none yet")
    after = edited(file_of("fsdp_sharding_strategy: HYBRID_SHARD", WRAP, rest=(*TWO, *layout)))
    assert settings(after.text)["parallelism_config"] == GROUPS
    assert "parallelism_config_dp_replicate_size: 2  # none yet" in after.text


def test_other_files_are_refused() -> None:
    with pytest.raises(EditError, match="not FSDP"):
        edited("distributed_type: MULTI_GPU\nnum_processes: 2\n")


def test_what_stays_is_said_to_stay() -> None:
    text = file_of(
        "fsdp_sharding_strategy: FULL_SHARD",
        "fsdp_use_orig_params: true",
        WRAP,
        rest=("use_cpu: false", *ONE),
    )
    told = {item.key: item for item in edited(text).reading.items}
    assert "stays" in told["use_cpu"].note
    assert told["fsdp_config.use_orig_params"].target == "removed"
