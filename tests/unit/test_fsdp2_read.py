"""FSDP2 code to the Plan: the fixtures, and what each way to write something means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from dsconf.document.source import Unusable
from dsconf.formats.fsdp2.read import read
from dsconf.formats.fsdp2.write import write
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request
from dsconf.plan import Plan, TrainerSchedule, Unresolved

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "fsdp2").glob("*.py"))
NOT_IN_CODE = {"checkpoint"}
"""Sections of the Plan that an emitted module does not tell: it can save in both ways."""


def read_file(path: Path) -> Reading:
    return read(path.read_text(encoding="utf-8"), path.name)


def leaves(value: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Each value by dotted path; one that is open is a word, whatever it is called."""
    for key, item in value.items():
        if isinstance(item, dict) and set(item) == {"key"}:
            yield f"{above}{key}", "open"
        elif isinstance(item, dict) and item:
            yield from leaves(item, f"{above}{key}.")
        else:
            yield f"{above}{key}", item


def described(reading: Reading) -> list[str]:
    """What a Reading says, one thing a line: the Plan where it is not the default, then the keys."""
    usual = dict(leaves(Plan().model_dump()))
    lines = [
        f"plan {path} = {value!r}"
        for path, value in leaves(reading.plan.model_dump())
        if path not in usual or usual[path] != value
    ]
    for key, value in reading.written.items():
        lines.append(f"written {key} = {value!r} -> {reading.fields.get(key, '-')}")
    for key, default in reading.in_force.items():
        lines.append(f"default {key} = {default.value!r} -> {reading.fields[key]}: {default.note}")
    for key, remark in reading.remarks.items():
        lines.append(f"remark {key}: {remark.outcome}: {remark.note}")
    for item in reading.items:
        action = f" [{item.action}]" if item.action else ""
        lines.append(f"item {item.key}: {item.outcome}: {item.note}{action}")
    return lines


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_fixtures(path: Path, snapshot: SnapshotAssertion) -> None:
    assert described(read_file(path)) == snapshot


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_key_is_said_once(path: Path) -> None:
    reading = read_file(path)
    placed = {key for key in reading.fields if key in reading.written or key in reading.in_force}
    said = [item.key for item in reading.items]
    assert set(reading.written) <= placed | set(said)
    assert len(said) == len(set(said))
    assert placed.isdisjoint(said)
    assert set(reading.remarks) <= placed | set(said)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_what_is_written_from_a_fixture_reads_the_same(path: Path) -> None:
    reading = read_file(path)
    writing = write(reading.plan, Request("x", {field: key for key, field in reading.fields.items()}))
    lost = [field for field, landing in writing.landings.items() if landing.outcome == "unsupported"]
    again = dict(leaves(read(writing.text, "again.py").plan.model_dump()))
    first = dict(leaves(reading.plan.model_dump()))
    for field in first | again:
        section = field.partition(".")[0]
        unknown = first.get(field) is None and again.get(field) == "open"  # a parameter in its place
        ranks = field == "batch.world_size" and "parallelism.tensor" in lost
        if section in NOT_IN_CODE or unknown or ranks or any(field.startswith(each) for each in lost):
            continue
        assert first.get(field) == again.get(field), field


# ---- pieces of code -----------------------------------------------------------------------------------------

HEAD = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
"""
BLOCKS = """
for block in model.layers:
    fully_shard(block{})
fully_shard(model{})
"""


def reading_of(code: str) -> Reading:
    return read(HEAD + dedent(code), "train.py")


def plan_of(code: str) -> Plan:
    return reading_of(code).plan


def sharded(arguments: str = "", more: str = "") -> Plan:
    """The Plan of a model whose blocks and root are sharded with some arguments."""
    given = f", {arguments}" if arguments else ""
    return plan_of(BLOCKS.format(given, given) + dedent(more))


def trained(body: str) -> str:
    """A script with this in its loop over batches."""
    loop = "\n".join(f"    {line}" for line in dedent(body).strip().split("\n"))
    return (
        BLOCKS.format("", "")
        + "optimizer = torch.optim.AdamW(model.parameters())\nfor i, batch in enumerate(loader):\n"
        + loop
        + "\n"
    )


@pytest.mark.parametrize(
    ("arguments", "partition", "reshard"),
    [
        ("", "parameters", True),
        ("reshard_after_forward=None", "parameters", True),
        ("reshard_after_forward=True", "parameters", True),
        ("reshard_after_forward=not False", "parameters", True),
        ("reshard_after_forward=4", "parameters", 4),
        ("reshard_after_forward=2 * 4", "parameters", 8),
        ("reshard_after_forward=False", "gradients", False),
        ("reshard_after_forward=1", "gradients", False),
    ],
)
def test_resharding(arguments: str, partition: str, reshard: bool | int) -> None:
    sharding = sharded(arguments).sharding
    assert (sharding.partition, sharding.reshard_after_forward) == (partition, reshard)
    assert sharding.own_linear is False


def test_a_root_alone_keeps_its_weights_unless_it_is_told_otherwise() -> None:
    alone = plan_of("fully_shard(model)")
    assert (alone.sharding.partition, alone.wrapping.root_only) == ("gradients", True)
    assert plan_of("fully_shard(model, reshard_after_forward=True)").sharding.partition == "parameters"


SYNC = """
for i, batch in enumerate(batches):
    model.set_requires_gradient_sync({})
    loss_fn(model, batch).backward()
"""


@pytest.mark.parametrize(
    ("test", "partition"),
    [
        ("i == 3", "optimizer"),
        ("True", "gradients"),
        ("(i + 1) % 4 == 0", "optimizer"),
        ("False", "optimizer"),
    ],
)
def test_a_reduction_on_the_last_micro_batch(test: str, partition: str) -> None:
    assert sharded("reshard_after_forward=False", SYNC.format(test)).sharding.partition == partition


def test_a_late_reduction_of_freed_weights_is_said() -> None:
    reading = reading_of(BLOCKS.format("", "") + SYNC.format("i == 3"))
    assert reading.plan.sharding.partition == "parameters"
    assert reading.remarks["set_requires_gradient_sync"].outcome == "approximate"


def test_gradients_add_up_in_the_dtype_in_which_fsdp2_holds_them() -> None:
    policy = "mp_policy=MixedPrecisionPolicy(torch.bfloat16), reshard_after_forward=False"
    assert sharded(policy).precision.accumulate == "fp32"
    assert sharded(policy, SYNC.format("i == 3")).precision.accumulate is None, "as compute: bf16"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("MixedPrecisionPolicy()", ("fp32", None, "none")),
        ("MixedPrecisionPolicy(torch.bfloat16)", ("bf16", None, "all")),
        ("MixedPrecisionPolicy(torch.bfloat16, torch.float32)", ("bf16", "fp32", "all")),
        ("MixedPrecisionPolicy(param_dtype=torch.half, reduce_dtype=torch.float)", ("fp16", "fp32", "all")),
        ("MixedPrecisionPolicy(torch.bfloat16, cast_forward_inputs=False)", ("bf16", None, "none")),
        ("MixedPrecisionPolicy(reduce_dtype=torch.float32)", ("fp32", None, "none")),
        ("MixedPrecisionPolicy(param_dtype=getattr(torch, 'bfloat16'))", ("bf16", None, "all")),
        ("MixedPrecisionPolicy(param_dtype={'a': torch.bfloat16}['a'])", ("bf16", None, "all")),
    ],
)
def test_policies(policy: str, expected: tuple[str, str | None, str]) -> None:
    precision = sharded(f"mp_policy={policy}").precision
    assert (precision.compute, precision.reduce, precision.units_cast) == expected
    assert precision.rounded_masters is (precision.compute == "fp32"), "nobody rounds them"


LOADED = """
model = build()
{}
for block in model.layers:
    fully_shard(block{})
fully_shard(model{})
"""


@pytest.mark.parametrize(
    ("load", "policy", "expected"),
    [
        ("model.bfloat16()", "", ("bf16", "bf16")),
        ("model = model.cuda().to(torch.bfloat16)", "", ("bf16", "bf16")),
        ("model = model.to(device, dtype=torch.bfloat16)", "", ("bf16", "bf16")),
        ("model.bfloat16(); model.float()", "", ("fp32", "fp32")),
        ("model.bfloat16()", ", mp_policy=MixedPrecisionPolicy(torch.bfloat16)", ("bf16", "bf16")),
        ("", ", mp_policy=MixedPrecisionPolicy(torch.bfloat16)", ("bf16", "fp32")),
        ("other.bfloat16()", "", ("fp32", "fp32")),
        ("x = batch.bfloat16()", "", ("fp32", "fp32")),
        ("torch.set_default_dtype(torch.bfloat16)", "", ("bf16", "bf16")),
    ],
)
def test_the_dtype_in_which_a_model_is_loaded(load: str, policy: str, expected: tuple[str, str]) -> None:
    precision = plan_of(LOADED.format(load, policy, policy)).precision
    assert (precision.compute, precision.masters) == expected


@pytest.mark.parametrize(
    "rounding",
    [
        "for p in model.parameters():\n    p.data.copy_(p.data.bfloat16())",
        "for p in model.parameters():\n    p.data = p.data.bfloat16()\nmodel.float()",
        "model.bfloat16().float()",
        "for name, p in model.named_parameters():\n    p.copy_(p.to(torch.bfloat16))",
    ],
)
def test_masters_that_are_rounded_first(rounding: str) -> None:
    policy = ", mp_policy=MixedPrecisionPolicy(torch.bfloat16)"
    precision = plan_of(LOADED.format(rounding, policy, policy)).precision
    assert (precision.masters, precision.rounded_masters) == ("fp32", True)


LISTED = """
blocks = []
for m in model.modules():
    if isinstance(m, Block):
        blocks.append(m)
for b in blocks:
    fully_shard(b)
"""


@pytest.mark.parametrize(
    ("loop", "classes"),
    [
        ("for m in model.modules():\n    if isinstance(m, Block):\n        fully_shard(m)", ("Block",)),
        ("for m in model.modules():\n    if isinstance(m, (Block, nets.Other)):\n        fully_shard(m)",
         ("Block", "Other")),
        ("for m in model.modules():\n    if not isinstance(m, Block):\n        continue\n    fully_shard(m)", ()),
        ("for _, m in model.named_modules():\n    if type(m) is Block:\n        fully_shard(m)", ("Block",)),
        ("for m in model.modules():\n    if type(m).__name__ == 'Block':\n        fully_shard(m)", ("Block",)),
        ("for m in model.modules():\n    if m.__class__.__name__ in NAMES:\n        fully_shard(m)", ("A", "B")),
        ("[fully_shard(m) for m in model.modules() if isinstance(m, Block)]", ("Block",)),
        (LISTED, ("Block",)),
        ("for m in model.modules():\n    if isinstance(m, Block) and m.wide:\n        fully_shard(m)", ("Block",)),
        ("for m in model.modules():\n    if m.wide:\n        fully_shard(m)", ()),
        ("for b in model.layers.values():\n    fully_shard(b)", ()),
        ("for i in range(len(model.layers)):\n    fully_shard(model.layers[i])", ()),
    ],
)  # fmt: skip
def test_blocks(loop: str, classes: tuple[str, ...]) -> None:
    reading = reading_of(
        f"from nets import Block\nimport nets\nNAMES = ['A', 'B']\n{loop}\nfully_shard(model)\n"
    )
    assert reading.plan.wrapping.block_classes == classes
    assert not reading.plan.wrapping.root_only
    assert reading.plan.sharding.partition == "parameters"


MESHES = [
    ("init_device_mesh('cuda', (8,))", "parameters", None, 8),
    ("init_device_mesh('cuda', (dist.get_world_size(),))", "parameters", None, None),
    ("init_device_mesh('cuda', (2, 4), mesh_dim_names=('r', 's'))", "parameters", 4, 8),
    ("init_device_mesh('cuda', (1, 4), mesh_dim_names=('r', 's'))", "parameters", None, 4),
    ("init_device_mesh('cuda', (4, 1), mesh_dim_names=('r', 's'))", "nothing", None, 4),
    ("init_device_mesh('cuda', (dist.get_world_size() // 4, 4))", "parameters", 4, None),
    ("init_device_mesh('cuda', (2, 4), mesh_dim_names=('r', 's'))['s']", "parameters", None, 8),
    ("init_device_mesh('cuda', (2, 2, 2), mesh_dim_names=('r', 's', 't'))['r', 's']", "parameters", 2, 8),
    (
        "init_device_mesh('cuda', (2, 4), mesh_dim_names=('r', 's'))['r', 's']._flatten('dp')",
        "parameters",
        None,
        8,
    ),
    ("some_mesh", "parameters", None, None),
]


@pytest.mark.parametrize(("mesh", "partition", "group", "ranks"), MESHES)
def test_meshes(mesh: str, partition: str, group: int | None, ranks: int | None) -> None:
    plan = plan_of(f"mesh = {mesh}\n" + BLOCKS.format(", mesh=mesh", ", mesh=mesh"))
    assert (plan.sharding.partition, plan.sharding.group, plan.ranks) == (partition, group, ranks)


@pytest.mark.parametrize(
    ("policy", "offloads", "pinned"),
    [
        ("CPUOffloadPolicy()", True, True),
        ("CPUOffloadPolicy(pin_memory=False)", True, False),
        ("CPUOffloadPolicy(False)", True, False),
        ("OffloadPolicy()", False, False),
        ("None", False, False),
        ("CPUOffloadPolicy() if OFF else OffloadPolicy()", True, True),
    ],
)
def test_offload(policy: str, offloads: bool, pinned: bool) -> None:
    offload = plan_of("OFF = True\n" + BLOCKS.format(f", offload_policy={policy}", "")).offload
    assert (offload.parameters, offload.optimizer, offload.pinned) == (offloads, offloads, pinned)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("AdamW(params, 1e-4)", {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}),
        ("AdamW(params, 1e-4, (0.9, 0.95), 1e-6, 0.1)",
         {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
        ("Adam(params=params)", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
        ("SGD(params, 0.1, 0.9, nesterov=True)",
         {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "nesterov": True}),
        ("Adadelta(params)", {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}),
        ("AdamW(params, **OPTIONS)", {"lr": 2e-4, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.01}),
        ("AdamW(params, lr=LR * 2)", {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}),
    ],
)  # fmt: skip
def test_optimizers(call: str, expected: dict[str, object]) -> None:
    code = f"LR = 1e-3\nOPTIONS = dict(lr=2e-4, betas=(0.9, 0.99))\nparams = model.parameters()\ntorch.optim.{call}\n"
    optimizer = sharded("", code).optimizer
    assert optimizer is not None
    assert optimizer.name == call.partition("(")[0]
    assert optimizer.arguments == expected


@pytest.mark.parametrize(
    ("loop", "accumulation"),
    [
        ("loss_fn(batch).backward()\noptimizer.step()", 1),
        ("(loss_fn(batch) / 4).backward()\noptimizer.step()", 4),
        ("loss = loss_fn(batch)\nloss = loss / N\nloss.backward()\noptimizer.step()", 4),
        ("loss = loss_fn(batch)\nloss /= N\nloss.backward()\noptimizer.step()", 4),
        ("loss = model(batch).loss.mean() * (1 / N)\nloss.backward()\noptimizer.step()", 4),
        ("loss = model(batch).loss * 0.25\nloss.backward()\noptimizer.step()", 4),
        ("torch.div(loss_fn(batch), N).backward()\noptimizer.step()", 4),
        ("loss_fn(batch).backward()\nif (i + 1) % N == 0:\n    optimizer.step()", 4),
        ("for micro in batch:\n    loss_fn(micro).backward()\noptimizer.step()", None),
        ("loss_fn(batch).backward()\nif is_last(i):\n    optimizer.step()", None),
        ("loss_fn(batch).backward()\nif norm.isfinite():\n    optimizer.step()", 1),
        ("(loss_fn(batch).sum() / batch.mask.sum()).backward()\noptimizer.step()", 1),
        ("(loss_fn(batch) / dist.get_world_size()).backward()\noptimizer.step()", 1),
        ("loss = loss_fn(batch).sum() / batch.mask.sum() / N\nloss.backward()\noptimizer.step()", 4),
        ("loss = loss_fn(batch) / N / batch.mask.sum()\nloss.backward()\noptimizer.step()", 4),
    ],
)
def test_accumulation(loop: str, accumulation: int | None) -> None:
    assert plan_of("N = 4\n" + trained(loop)).batch.accumulation == accumulation


def test_a_sum_over_micro_batches_is_said() -> None:
    loop = "loss_fn(batch).backward()\nif (i + 1) % ACCUMULATE == 0:\n    optimizer.step()"
    reading = reading_of("ACCUMULATE = 4\n" + trained(loop))
    assert reading.remarks["ACCUMULATE"].outcome == "approximate"
    assert "add up" in reading.remarks["ACCUMULATE"].note


def test_an_open_number_of_micro_batches_has_its_place() -> None:
    reading = reading_of(trained("(loss_fn(batch) / len(batches)).backward()\noptimizer.step()"))
    assert reading.plan.batch.accumulation == Unresolved(key="len(batches)")
    assert reading.remarks["len(batches)"].note.startswith("12:")


@pytest.mark.parametrize(
    ("call", "norm"),
    [
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)", 0.5),
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)", 1.0),
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), float('inf'))", None),
        (
            "torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)",
            Unresolved(key="clip_grad_norm_.max_norm"),
        ),
        ("pass", None),
    ],
)
def test_clipping(call: str, norm: object) -> None:
    loop = f"loss_fn(batch).backward()\n{call}\noptimizer.step()"
    assert plan_of(trained(loop)).clipping.max_norm == norm


@pytest.mark.parametrize(
    ("step", "skips"),
    [
        ("optimizer.step()", False),
        ("if torch.isfinite(norm):\n    optimizer.step()", True),
        ("if not (torch.isnan(norm) or torch.isinf(norm)):\n    optimizer.step()", True),
        ("if norm.isfinite().all():\n    optimizer.step()", True),
        ("if i % 2:\n    optimizer.step()", False),
        ("scaler.step(optimizer)", True),
    ],
)
def test_steps_with_a_norm_that_is_not_finite(step: str, skips: bool) -> None:
    assert plan_of(trained(f"loss_fn(batch).backward()\n{step}")).clipping.skips_not_finite is skips


def test_schedules() -> None:
    code = "o = torch.optim.SGD(model.parameters(), 0.1)\n{}"
    torch_one = sharded("", code.format("torch.optim.lr_scheduler.CosineAnnealingLR(o, 100, eta_min=1e-6)"))
    assert torch_one.schedule is not None
    assert torch_one.schedule.model_dump() == {
        "name": "CosineAnnealingLR",
        "arguments": {"T_max": 100, "eta_min": 1e-6},
    }
    own = "from transformers import get_linear_schedule_with_warmup as warm\nwarm(o, 10, 100)"
    assert sharded("", code.format(own)).schedule == TrainerSchedule(
        name="linear", warmup_steps=10, total_steps=100
    )
    parts = "[S.LinearLR(o), S.CosineAnnealingLR(o, 9)]"
    joined = f"S = torch.optim.lr_scheduler\nS.SequentialLR(o, {parts}, milestones=[1])"
    reading = reading_of(BLOCKS.format("", "") + code.format(joined))
    assert reading.plan.schedule is None
    assert [item.key for item in reading.items if item.outcome == "needs-value"] == ["SequentialLR"]


def test_a_schedule_that_moves_once_per_epoch_is_said() -> None:
    reading = reading_of(
        BLOCKS.format("", "")
        + dedent("""
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for epoch in range(9):
            for batch in loader:
                loss_fn(batch).backward()
                optimizer.step()
            scheduler.step()
        """)
    )
    assert "once per epoch" in next(item.note for item in reading.items if item.key == "lr_scheduler.step")


@pytest.mark.parametrize(
    ("context", "dtype"),
    [
        ("torch.autocast('cuda', torch.bfloat16)", "bf16"),
        ("torch.autocast(device_type='cuda', dtype=torch.float16)", "fp16"),
        ("torch.amp.autocast('cpu')", "bf16"),
        ("torch.cuda.amp.autocast()", "fp16"),
        ("torch.cuda.amp.autocast(dtype=torch.bfloat16)", "bf16"),
        ("torch.autocast('cuda', torch.bfloat16, enabled=False)", None),
        ("torch.autocast('cuda', torch.bfloat16, enabled=args.amp)", None),
        ("torch.no_grad(), torch.autocast('cuda', torch.bfloat16)", None),
    ],
)
def test_autocast(context: str, dtype: str | None) -> None:
    loop = f"with {context}:\n    loss = loss_fn(model(batch))\nloss.backward()\noptimizer.step()"
    assert plan_of(trained(loop)).precision.autocast == dtype


def test_names_are_followed_and_not_compared() -> None:
    code = """
    import torch as t
    import torch.distributed.fsdp as F
    from torch.distributed._composable.fsdp import fully_shard as fs
    from torch.optim import AdamW as Optimizer

    fully = F.fully_shard
    for b in model.blocks:
        fs(b, mp_policy=F.MixedPrecisionPolicy(param_dtype=t.bfloat16))
    fully(model, mp_policy=F.MixedPrecisionPolicy(param_dtype=t.bfloat16))
    Optimizer(model.parameters(), lr=3)
    """
    plan = plan_of(code)
    assert plan.precision.compute == "bf16"
    assert plan.optimizer is not None
    assert plan.optimizer.arguments["lr"] == 3
    own = (
        "def fully_shard(module): ...\ndef AdamW(params): ...\nfully_shard(model)\nAdamW(model.parameters())"
    )
    with pytest.raises(Unusable, match="no call"):
        read(own, "x.py")


def test_dictionaries_are_followed() -> None:
    code = """
    def kwargs_of(offload: bool, **more):
        kwargs = {"reshard_after_forward": False, **more}
        if offload:
            kwargs["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
        return kwargs

    def apply(model):
        kwargs = kwargs_of(True, mp_policy=MixedPrecisionPolicy(torch.bfloat16))
        kwargs.update(reshard_after_forward=True)
        for block in model.blocks:
            fully_shard(block, **kwargs)
        fully_shard(model, **{**kwargs, "reshard_after_forward": False})

    apply(get())
    """
    plan = plan_of(code)
    assert plan.sharding.partition == "parameters"
    assert plan.precision.compute == "bf16"
    assert (plan.offload.optimizer, plan.offload.pinned) == (True, False)


@pytest.mark.parametrize(
    ("change", "partition"),
    [
        ("d.update({'reshard_after_forward': True})", "parameters"),
        ("d.setdefault('reshard_after_forward', True)", "gradients"),
        ("d.pop('reshard_after_forward')", "parameters"),
        ("d = d.copy(); d['reshard_after_forward'] = True", "parameters"),
        ("d = {'reshard_after_forward': d.get('other', True)}", "parameters"),
        ("d = {'reshard_after_forward': d.get('reshard_after_forward')}", "gradients"),
        ("d |= {'reshard_after_forward': 2 > 1}", "parameters"),
    ],
)
def test_methods_of_dictionaries(change: str, partition: str) -> None:
    code = "d = dict(reshard_after_forward=False)\n" + change + BLOCKS.format(", **d", "")
    assert plan_of(code).sharding.partition == partition


def test_what_only_a_run_determines_is_said_with_its_place() -> None:
    code = """
    def shard(model, args):
        for block in model.blocks:
            fully_shard(block, mp_policy=args.policy, reshard_after_forward=args.reshard, mesh=args.mesh)
        fully_shard(model, mp_policy=args.policy)
    """
    reading = reading_of(code)
    said = {item.key: item for item in reading.items}
    policy = said["fully_shard.mp_policy"]
    assert policy.note == "9:9: fully_shard is called with a computed policy, `args.policy`"
    assert policy.outcome == said["fully_shard.reshard_after_forward"].outcome == "needs-value"
    assert reading.plan.precision.compute == Unresolved(key="fully_shard.mp_policy")
    assert "args.mesh" in str(said["fully_shard.mesh"].value)


def test_unpacked_arguments_that_nobody_knows_are_said() -> None:
    reading = reading_of(
        "def f(model, kwargs):\n    for b in model.blocks:\n        fully_shard(b, **kwargs)\n"
    )
    said = {item.key for item in reading.items if item.outcome == "needs-value"}
    assert {
        "fully_shard.mp_policy",
        "fully_shard.reshard_after_forward",
        "fully_shard.offload_policy",
    } <= said


def test_two_policies_for_blocks_are_said() -> None:
    code = """
    wide, narrow = MixedPrecisionPolicy(torch.float32), MixedPrecisionPolicy(torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, mp_policy=narrow)
    for block in model.others:
        fully_shard(block, mp_policy=wide)
    fully_shard(model, mp_policy=narrow)
    """
    reading = reading_of(code)
    assert reading.plan.precision.compute == "bf16"
    assert reading.remarks["fully_shard.mp_policy"].outcome == "approximate"
    assert "9:5" in reading.remarks["fully_shard.mp_policy"].note


def test_a_condition_that_is_known_decides() -> None:
    code = """
    USE_BF16 = {}
    kwargs = {{}}
    if USE_BF16:
        kwargs["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16)
    for b in model.blocks:
        fully_shard(b, **kwargs)
    """
    assert plan_of(code.format("True")).precision.compute == "bf16"
    assert plan_of(code.format("False")).precision.compute == "fp32"
    assert plan_of(code.format("args.bf16")).precision.compute == Unresolved(key="fully_shard.mp_policy")


def test_a_number_that_a_loop_counts_is_no_constant() -> None:
    loop = "steps += 1\nloss_fn(batch).backward()\nif steps == 1:\n    optimizer.step()"
    assert plan_of("steps = 0\n" + trained(loop)).clipping.skips_not_finite is False


def test_several_optimizers_are_none() -> None:
    reading = reading_of(
        BLOCKS.format("", "")
        + "torch.optim.AdamW(model.parameters(), 1)\ntorch.optim.SGD(critic.parameters(), 1)\n"
    )
    assert reading.plan.optimizer is None
    assert "AdamW" in next(item.note for item in reading.items if item.key == "optimizer")


def test_a_class_that_holds_the_model() -> None:
    code = """
    class Trainer:
        lr = 1e-4

        def __init__(self, model):
            self.model = model
            self.setup()
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr)

        def setup(self):
            self.model.to(torch.bfloat16)
            for layer in self.model.layers:
                fully_shard(layer)
            fully_shard(self.model)

        def step(self, batch):
            loss = self.model(batch).loss / 2
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
    """
    plan = plan_of(code)
    assert plan.precision.masters == "bf16"
    assert plan.optimizer is not None
    assert plan.optimizer.arguments["lr"] == 1e-4
    assert (plan.batch.accumulation, plan.clipping.max_norm) == (2, 1.0)


# ---- what can't be read -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:\n    pass", r"does not parse as Python 3 \(1:"),
        ("x = 1\n  y = fully_shard\n", r"does not parse as Python 3 \(2:"),
        ("import torch\nprint(torch)", "no call of torch's fully_shard"),
        ("from torch.distributed.fsdp import fully_shard", "no call of torch's fully_shard"),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(model)",
            "2:9: FullyShardedDataParallel is FSDP1",
        ),
        ("", "no call"),
        (f"fully_shard({'(' * 3000}1{')' * 3000})", "parse|nested"),
        ("fully_shard\nx = " + " + ".join(["1"] * 5000), "nested|no call"),
    ],
)
def test_what_is_no_fsdp2_code_is_refused_with_its_place(code: str, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        read(code, "train.py")


ROOT = Path(__file__).parents[2]


def test_any_python_file_is_read_or_refused() -> None:
    read_ones = set()
    for folder in ("dsconf", "tests", "benchmarks", "tools", "fixtures"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            with contextlib.suppress(Unusable):
                read_file(path)
                read_ones.add(path.stem)
    assert {"handwritten", "sharding", "hf_finetune"} <= read_ones


MUTATIONS = (
    "(", ")", "self.", "*", "None", "= ", "if x:\n    ", "return ", "[0]", "lambda: ", "not ", ".data", "\n", "a, ",
)  # fmt: skip


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_whatever_a_file_has_become_only_unusable_is_raised(path: Path) -> None:
    random = Random(path.stem)
    text = path.read_text(encoding="utf-8")
    for _ in range(25):
        changed = text
        for _ in range(random.randint(1, 3)):
            start = random.randrange(len(changed))
            end = start + random.choice((0, 1, 5, 40))
            changed = changed[:start] + random.choice(MUTATIONS) + changed[end:]
        with contextlib.suppress(Unusable):
            read(changed, path.name)
        lines = text.split("\n")
        place = random.randrange(len(lines))
        lines[place] = lines[place].replace("=", random.choice(("+=", "/=", ":=")), 1)
        del lines[random.randrange(len(lines))]
        with contextlib.suppress(Unusable):
            read("\n".join(lines), path.name)


MATCHED = """
match POLICY:
    case "always":
        reshard = True
    case "never":
        reshard = False
    case _:
        reshard = 2
"""


@pytest.mark.parametrize(
    ("policy", "partition"), [("'always'", "parameters"), ("'never'", "gradients"), ("'x'", "parameters")]
)
def test_a_match_on_what_is_known_decides(policy: str, partition: str) -> None:
    given = BLOCKS.format(", reshard_after_forward=reshard", "")
    assert plan_of(f"POLICY = {policy}\n{MATCHED}{given}").sharding.partition == partition


def test_a_match_on_what_is_not_known_is_open() -> None:
    reading = reading_of(
        f"POLICY = args.policy\n{MATCHED}" + BLOCKS.format(", reshard_after_forward=reshard", "")
    )
    assert "fully_shard.reshard_after_forward" in {
        item.key for item in reading.items if item.outcome == "needs-value"
    }


def test_all_blocks_but_the_last_one_free_their_weights() -> None:
    code = """
    for i, block in enumerate(model.layers):
        fully_shard(block, reshard_after_forward=i < len(model.layers) - 1)
    fully_shard(model)
    """
    reading = reading_of(code)
    assert reading.plan.sharding.partition == "parameters"
    assert "last block" in reading.remarks["fully_shard.reshard_after_forward"].note


def test_a_file_that_can_shard_or_replicate_is_read_as_one_that_shards() -> None:
    code = """
    from torch.nn.parallel import DistributedDataParallel as DDP
    if args.ddp:
        model = DDP(model)
    else:
        for block in model.layers:
            fully_shard(block)
        fully_shard(model)
    """
    reading = reading_of(code)
    assert reading.plan.sharding.partition == "parameters"
    assert [item.key for item in reading.items if item.outcome == "needs-value"] == [
        "DistributedDataParallel"
    ]


@pytest.mark.parametrize(
    ("call", "scale", "window"),
    [
        ("torch.amp.GradScaler()", 65536.0, 2000),
        ("torch.amp.GradScaler(device, 1024.0, growth_interval=5)", 1024.0, 5),
        ("torch.cuda.amp.GradScaler(2.0**12)", 4096.0, 2000),
    ],
)
def test_gradient_scalers(call: str, scale: float, window: int) -> None:
    scaling = sharded("mp_policy=MixedPrecisionPolicy(torch.half)", f"scaler = {call}").precision.scaling
    assert scaling is not None
    assert (scaling.scale, scaling.window, scaling.hysteresis) == (scale, window, 1)
    off = sharded("", "scaler = torch.amp.GradScaler(enabled=False)")
    assert off.precision.scaling is None


def test_a_file_that_is_too_long_to_be_followed_says_so() -> None:
    lines = "\n".join(f"x{i} = [{', '.join(['a.b.c'] * 40)}]" for i in range(600))
    reading = reading_of(BLOCKS.format("", "") + lines)
    assert "too long" in next(item.note for item in reading.items if item.key == "(the file)")


def test_what_a_run_determines_can_be_given() -> None:
    path = ROOT / "fixtures" / "fsdp2" / "all_from_arguments.py"
    given: dict[str, object] = {
        "MixedPrecisionPolicy.param_dtype": "torch.bfloat16",
        "self.args.accumulation": 4,
        "clip_grad_norm_.max_norm": 1,
        "fully_shard.reshard_after_forward": False,
        "AdamW.lr": 1e-4,
    }
    reading = read(path.read_text(encoding="utf-8"), path.name, given)
    plan = reading.plan
    assert (plan.precision.compute, plan.batch.accumulation, plan.clipping.max_norm) == ("bf16", 4, 1.0)
    assert plan.sharding.partition == "gradients"
    taken = {key for key in given if reading.labels.get(reading.fields.get(key, "")) == f"--set {key}"}
    assert taken == set(given) - {"AdamW.lr"}, "which optimizer it is remains open"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("self.args.accumulation", "four"),
        ("self.args.accumulation", 2.5),
        ("clip_grad_norm_.max_norm", [1]),
        ("MixedPrecisionPolicy.param_dtype", 16),
        ("fully_shard.reshard_after_forward", "often"),
        ("no such key", 1),
    ],
)
def test_what_does_not_fit_is_not_taken(key: str, value: object) -> None:
    path = ROOT / "fixtures" / "fsdp2" / "all_from_arguments.py"
    text = path.read_text(encoding="utf-8")
    assert read(text, path.name, {key: value}) == read(text, path.name)


def test_a_given_argument_counts_instead_of_a_default() -> None:
    code = HEAD + BLOCKS.format("", "") + "torch.optim.AdamW(model.parameters())"
    optimizer = read(code, "x.py", {"AdamW.weight_decay": 0.5, "AdamW.betas": [0.8, 0.9]}).plan.optimizer
    assert optimizer is not None
    assert optimizer.arguments["weight_decay"] == 0.5
    assert optimizer.arguments["betas"] == (0.8, 0.9)


@pytest.mark.parametrize(
    "value",
    [
        "float('inf')",
        "float('nan')",
        "10**400",
        "1" * 400,
        "-1",
        "'x'",
        "None",
        "[]",
        "{1: 2}",
        "1e-320",
        "True",
    ],
)
def test_any_value_is_read(value: str) -> None:
    """Whatever stands in the place of a number."""
    code = f"""
    V = {value}
    for block in model.layers:
        fully_shard(block, mesh=init_device_mesh("cuda", (V, V)), reshard_after_forward=V)
    fully_shard(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), V)
    optimizer = torch.optim.AdamW(model.parameters(), V, V, weight_decay=(V, V))
    torch.optim.lr_scheduler.StepLR(optimizer, V)
    from transformers import get_scheduler
    get_scheduler(V, optimizer, V, V, scheduler_specific_kwargs=V)
    scaler = torch.amp.GradScaler("cuda", V, V, V, V, V)
    torch.utils.data.DataLoader(data, V)
    with torch.autocast("cuda", V, V):
        loss = model(batch) / V * V
    loss.backward()
    optimizer.step()
    """
    with contextlib.suppress(Unusable):
        reading = reading_of(code)
        assert reading.plan.optimizer is not None
