"""Modules that dsconf wrote come back: every public config, and what users change in a module."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from corpus import MUST_TRANSLATE, configs, named, needs_corpus
from filling import values_for

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.read import read as read_deepspeed
from dsconf.formats.fsdp2 import emit
from dsconf.formats.fsdp2.read import read
from dsconf.formats.fsdp2.write import write
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import open_document
from dsconf.plan import (
    Batch,
    Clipping,
    LossScaling,
    Momentum,
    Offload,
    OneCycle,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    RangeTest,
    Sharding,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
    Wrapping,
)

ADAMW = Optimizer(
    name="AdamW", arguments={"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
)
SCALING = LossScaling(scale=2.0**16, window=1000, hysteresis=2, refill=False, minimum=1.0)
STYLES = {
    "attention.q": "colwise",
    "attention.o": "rowwise",
    "attention.norm": "replicated_with_grad_allreduce",
}


class Written(NamedTuple):
    """A Plan, the module of it, and what the writer said."""

    plan: Plan
    text: str
    landings: Mapping[str, Landing]


def written(plan: Plan) -> Written:
    writing = write(plan, Request("A module.", {}))
    return Written(plan, writing.text, writing.landings)


def told(plan: Plan) -> Plan:
    """What of a Plan the code of FSDP2 tells, in one way where there are several to say the same."""
    batch, precision, sharding = plan.batch, plan.precision, plan.sharding
    if sharding.partition == "optimizer" and batch.accumulation == 1:
        sharding = sharding.model_copy(update={"partition": "gradients"})  # one reduction in either case
    last = sharding.partition in ("nothing", "optimizer")
    # FSDP2 adds gradients up in the dtype of the shards, or of whole gradients: that of their reduction.
    reduce = None if precision.reduce == precision.compute else precision.reduce
    kept = reduce if last else precision.masters
    micro = batch.micro if isinstance(batch.micro, int) else None
    total, world = batch.total if isinstance(batch.total, int) else None, batch.world_size
    if micro is not None and world is not None and isinstance(batch.accumulation, int):
        total = micro * batch.accumulation * world
    offloads = plan.offload.parameters or plan.offload.optimizer  # all or nothing
    return plan.model_copy(
        update={
            "batch": batch.model_copy(update={"micro": micro, "total": total}),
            "sharding": sharding.model_copy(update={"own_linear": False}),
            "precision": precision.model_copy(
                update={
                    "reduce": reduce,
                    "accumulate": None if kept == precision.compute else kept,
                    "steps_before": False,
                    "moments": None,
                }
            ),
            "offload": plan.offload.model_copy(update={"parameters": offloads, "optimizer": offloads}),
            "clipping": plan.clipping.model_copy(
                update={"skips_not_finite": plan.clipping.skips_not_finite is not False}
            ),
            "optimizer": plan.optimizer and plan.optimizer.model_copy(update={"own_kernel": False}),
            "launch": Plan().launch,
            "checkpoint": Plan().checkpoint,  # a module can save in both ways
        }
    )


PLANS: dict[str, Plan] = {
    "nothing": Plan(),
    "ZeRO-1": Plan(batch=Batch(accumulation=4), sharding=Sharding(partition="optimizer", reshard_after_forward=False)),
    "ZeRO-2": Plan(batch=Batch(micro=2, accumulation=4), optimizer=ADAMW,
                   sharding=Sharding(partition="gradients", reshard_after_forward=False)),
    "hpZ": Plan(sharding=Sharding(partition="parameters", reshard_after_forward=4), batch=Batch(accumulation=2)),
    "groups": Plan(sharding=Sharding(partition="parameters", group=4), batch=Batch(accumulation=2)),
    "sums": Plan(sharding=Sharding(partition="parameters", sums_gradients=True), batch=Batch(accumulation=2)),
    "ranks": Plan(batch=Batch(micro=2, accumulation=3, total=48, world_size=8),
                  sharding=Sharding(partition="parameters")),
    "open": Plan(batch=Batch(accumulation=Unresolved(key="a")), precision=Precision(compute=Unresolved(key="b")),
                 clipping=Clipping(max_norm=Unresolved(key="c")),
                 optimizer=Optimizer(name="AdamW", arguments={"lr": Unresolved(key="d")})),
    "bf16": Plan(batch=Batch(accumulation=2), precision=Precision(compute="bf16"), optimizer=ADAMW,
                 clipping=Clipping(max_norm=1.0), sharding=Sharding(partition="parameters")),
    "bf16, fp32 reduction": Plan(batch=Batch(accumulation=2), sharding=Sharding(partition="parameters"),
                                 precision=Precision(compute="bf16", reduce="fp32", rounded_masters=False)),
    "16-bit masters": Plan(batch=Batch(accumulation=2), precision=Precision(compute="bf16", masters="bf16"),
                           sharding=Sharding(partition="parameters")),
    "casts": Plan(batch=Batch(accumulation=1), sharding=Sharding(partition="parameters"),
                  precision=Precision(compute="fp16", casts_inputs=True, buffers="fp16", scaling=SCALING,
                                      fp32_buffers=("inv_freq", "router*bias"))),
    "unit casts": Plan(batch=Batch(accumulation=1), precision=Precision(compute="bf16", units_cast="all")),
    "root casts": Plan(batch=Batch(accumulation=1), precision=Precision(compute="bf16", units_cast="model")),
    "fixed scale": Plan(batch=Batch(accumulation=1), precision=Precision(compute="fp16",
                                                                       scaling=LossScaling(scale=128.0))),
    "refilled": Plan(batch=Batch(accumulation=1), precision=Precision(
        compute="fp16", scaling=SCALING.model_copy(update={"refill": True}))),
    "autocast": Plan(batch=Batch(accumulation=1), precision=Precision(autocast="bf16")),
    "offload": Plan(batch=Batch(accumulation=1), offload=Offload(parameters=True, optimizer=True, pinned=True)),
    "units": Plan(batch=Batch(accumulation=1), sharding=Sharding(partition="parameters"),
                  wrapping=Wrapping(block_classes=("A", "B"), separate_ends=True, unused_parameters=True)),
    "sizes": Plan(batch=Batch(accumulation=1), wrapping=Wrapping(min_params=1000)),
    "root": Plan(batch=Batch(accumulation=1), wrapping=Wrapping(root_only=True)),
    "recomputed": Plan(batch=Batch(accumulation=1), recompute=True),
    "unchecked": Plan(batch=Batch(accumulation=1), clipping=Clipping(max_norm=0.5, skips_not_finite=False)),
    "tensor parallel": Plan(batch=Batch(accumulation=2), sharding=Sharding(partition="parameters"),
                            precision=Precision(compute="bf16"), optimizer=ADAMW, clipping=Clipping(max_norm=1.0),
                            parallelism=Parallelism(tensor=2, block_styles=STYLES,
                                                    root_styles={"head": "colwise_gather_output"})),
    "tensor parallel, recomputed": Plan(batch=Batch(accumulation=1), sharding=Sharding(partition="parameters"),
                                        recompute=True, parallelism=Parallelism(tensor=2, block_styles=STYLES)),
    "Lion": Plan(batch=Batch(accumulation=1), optimizer=Optimizer(
        name="Lion", arguments={"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}, sign_of_zero="negative")),
    "Muon": Plan(batch=Batch(accumulation=1), optimizer=Optimizer(
        name="Muon", decoupled=False, arguments={"lr": 1e-3, "adam_lr": 1e-4, "momentum": 0.9, "betas": (0.9, 0.99),
                                                 "eps": 1e-8, "weight_decay": 0.1})),
    "uncorrected": Plan(batch=Batch(accumulation=1), optimizer=ADAMW.model_copy(update={"bias_correction": False})),
    "SGD": Plan(batch=Batch(accumulation=1), optimizer=Optimizer(name="SGD", arguments={"lr": 0.1, "nesterov": True,
                                                                                        "momentum": 0.9})),
    "WarmupLR": Plan(batch=Batch(accumulation=1), schedule=Warmup(
        name="WarmupLR", min_lr=0.0, max_lr=None, warmup_steps=10, warmup="log")),
    "WarmupDecayLR": Plan(batch=Batch(accumulation=1), schedule=Warmup(
        name="WarmupDecayLR", min_lr=0.0, max_lr=1e-3, warmup_steps=Unresolved(key="w"), warmup="linear",
        total_steps=100)),
    "WarmupCosineLR": Plan(batch=Batch(accumulation=1), schedule=WarmupCosine(
        min_ratio=0.1, final_ratio=0.01, warmup_steps=10, warmup="linear", total_steps=100)),
    "OneCycle": Plan(batch=Batch(accumulation=1), schedule=OneCycle(
        min_lr=1e-5, max_lr=1e-3, first_steps=10, second_steps=20, first_stairs=2, second_stairs=3, decay_steps=5,
        decay=0.1, momentum=Momentum(low=0.8, high=0.9, decay=0.2))),
    "OneCycle, plain": Plan(batch=Batch(accumulation=1), schedule=OneCycle(
        min_lr=1e-5, max_lr=1e-3, first_steps=10, second_steps=20)),
    "LRRangeTest": Plan(batch=Batch(accumulation=1), schedule=RangeTest(
        min_lr=1e-5, interval=10, rate=2.0, staircase=True)),
    "StepLR": Plan(batch=Batch(accumulation=1), schedule=TorchSchedule(
        name="MultiStepLR", arguments={"milestones": [3, 5], "gamma": 0.5})),
    "cosine": Plan(batch=Batch(accumulation=1), schedule=TrainerSchedule(
        name="cosine", warmup_steps=10, total_steps=100)),
    "constant": Plan(batch=Batch(accumulation=1), schedule=TrainerSchedule(name="constant", warmup_steps=0)),
}  # fmt: skip


def opened(value: Any) -> Any:
    """A Plan as a dict in which open values are alike, whatever they are called."""
    if isinstance(value, dict):
        return "open" if set(value) == {"key"} else {key: opened(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return sorted(value) if all(isinstance(item, str) for item in value) else list(value)
    return value


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_comes_back(name: str) -> None:
    done = written(PLANS[name])
    assert all(landing.outcome != "unsupported" for landing in done.landings.values())
    reading = read(done.text, "module.py")
    expected, found = opened(told(PLANS[name]).model_dump()), opened(reading.plan.model_dump())
    if PLANS[name].batch.accumulation is None:
        assert found["batch"].pop("accumulation") == "open"
        expected["batch"].pop("accumulation")
    assert found == expected
    assert {item.key for item in reading.items} <= {"find_units", "FOREACH"}


@needs_corpus
def test_every_public_config_comes_back() -> None:
    wrong = {}
    for path in configs():
        if named(path) not in MUST_TRANSLATE:
            continue
        values = values_for(path)
        plan = read_deepspeed(config_of(open_document(str(path), Context()), Context(), values)).plan
        done = written(plan)
        found = read(done.text, path.name).plan
        expected = told(plan)
        given = found.precision.reduce
        if given != expected.precision.reduce:
            # Gradients that are added up in fp32 before their reduction are reduced in fp32, too.
            assert (given, plan.precision.accumulate) == ("fp32", "fp32")
            assert done.landings["precision.accumulate"].outcome == "close"
            precision = expected.precision.model_copy(update={"reduce": "fp32", "accumulate": "fp32"})
            expected = expected.model_copy(update={"precision": precision})
        if opened(found.model_dump()) != opened(expected.model_dump()):
            wrong[path.name] = (found, expected)
    assert wrong == {}


# ---- what users change ----------------------------------------------------------------------------------------

FULL = written(
    Plan(
        batch=Batch(micro=2, accumulation=4),
        precision=Precision(compute="bf16"),
        sharding=Sharding(partition="optimizer", reshard_after_forward=False),
        optimizer=ADAMW,
        clipping=Clipping(max_norm=1.0),
        schedule=Warmup(name="WarmupLR", min_lr=0.0, max_lr=1e-4, warmup_steps=10, warmup="log"),
    )
).text


def changed(old: str, new: str) -> str:
    assert FULL.count(old) == 1, old
    return FULL.replace(old, new)


def test_a_constant_may_have_another_value() -> None:
    plan = read(changed("CLIP_NORM = 1.0", "CLIP_NORM = 0.5 / 2"), "m.py").plan
    assert plan.clipping.max_norm == 0.25


def test_a_constant_of_another_kind_is_refused() -> None:
    with pytest.raises(Unusable, match="can't have the value 'ten'"):
        read(changed("WARMUP_STEPS = 10", "WARMUP_STEPS = 'ten'"), "m.py")


def test_a_constant_that_is_computed_is_open() -> None:
    reading = read(changed("\nLR = 0.0001", "\nLR = 1e-4 * dist.get_world_size()"), "m.py")
    assert reading.plan.optimizer is not None
    assert reading.plan.optimizer.arguments["lr"] == Unresolved(key="LR")
    assert "known in a run only" in reading.remarks["LR"].note


def test_comments_and_docstrings_are_free() -> None:
    lines = [line.partition("  #")[0] for line in FULL.split("\n") if not line.lstrip().startswith("#")]
    assert read("\n".join(lines), "m.py").plan == read(FULL, "m.py").plan


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        ("train_step", "        losses.append(loss.detach())",
         "        losses.append(loss.detach())\n        print(loss)"),
        ("parallelize", "    for module in [*find_blocks(model), model]:",
         "    print(model)\n    for module in [*find_blocks(model), model]:"),
        ("build_optimizer", "    return torch.optim.AdamW(", "    print(params)\n    return torch.optim.AdamW("),
        ("evaluate", "    model.eval()", "    model.eval()\n    print(model)"),
    ],
)  # fmt: skip
def test_an_edited_function_is_named_and_read_as_any_other_code(function: str, old: str, new: str) -> None:
    reading = read(changed(old, new), "m.py")
    assert [item.key for item in reading.items if item.note.startswith("dsconf writes")] == [function]
    plan, first = reading.plan, read(FULL, "m.py").plan
    assert plan.batch == first.batch
    assert plan.sharding == first.sharding
    assert plan.schedule == first.schedule
    assert plan.clipping == first.clipping
    assert plan.optimizer == first.optimizer
    assert (plan.precision.compute, plan.precision.reduce) == ("bf16", None)


def test_another_loss_divisor_counts() -> None:
    reading = read(changed("(loss / GRADIENT_ACCUMULATION_STEPS)", "(loss / 16)"), "m.py")
    assert reading.plan.batch.accumulation == 16


def test_a_script_below_the_functions_is_read_too() -> None:
    tail = """

def main():
    dist.init_process_group()
    loader = torch.utils.data.DataLoader(data(), batch_size=7)
    model = torch.compile(parallelize(net(), torch.device("cuda")))
    optimizer = build_optimizer(model)
    for batches in loader:
        train_step(model, optimizer, None, batches, loss)
"""
    reading = read(FULL.replace("MICRO_BATCH_SIZE = 2\n", "") + tail, "m.py")
    assert reading.plan.batch.micro == 7
    assert {item.key for item in reading.items} == {"torch.compile", "init_process_group"}


def test_parallelize_alone_says_what_it_says() -> None:
    plan = Plan(
        precision=Precision(compute="bf16"),
        sharding=Sharding(partition="parameters"),
        batch=Batch(accumulation=4, micro=2),
    )
    text = write(plan, Request("x", {}, style="minimal")).text
    found = read(text, "m.py").plan
    assert (found.precision.compute, found.sharding.partition, found.batch.micro) == ("bf16", "parameters", 2)
    assert found.batch.accumulation is None


def test_whatever_stands_in_a_file_only_unusable_is_raised() -> None:
    random = Random(7)
    for number in range(60):
        lines = FULL.split("\n")
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(lines))
            match random.randrange(5):
                case 0:
                    del lines[place]
                case 1:
                    lines.insert(place, lines[random.randrange(len(lines))])
                case 2:
                    lines[place] = lines[place].replace("model", "self.model[0]")
                case 3:
                    words = lines[place].split(" ")
                    random.shuffle(words)
                    lines[place] = " ".join(words)
                case _:
                    lines[place] = lines[place].replace("=", "*=", 1).replace("(", "(*x, **y, z=", 1)
        with contextlib.suppress(Unusable):
            read("\n".join(lines), f"m{number}.py")


# ---- what the parts can say -----------------------------------------------------------------------------------

PARTS = Path(emit.__file__).parent / "parts"
DERIVED = {"ANY_PRECISION", "COUNTED", "FINISHED", "FROZEN_WHOLE", "LEFT_GATHERED", "OWN_MAX_LR"} | {
    "LR_DECAYS",
    "MOMENTUM_DECAYS",
    "STAIRS",
}
"""Flags that follow from others, and from the constants of the module."""


def test_every_choice_of_the_parts_is_read() -> None:
    readers = ("read_emitted.py", "read_emitted_schedule.py")
    source = "".join((PARTS.parent / reader).read_text(encoding="utf-8") for reader in readers)
    flags = {
        node.test.id
        for path in PARTS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name) and node.test.id.isupper()
    }
    assert {flag for flag in flags if f'"{flag}"' not in source} == DERIVED


def test_keys_come_in_the_order_of_the_file() -> None:
    written_keys = [key for key in read(FULL, "m.py").written if key.isupper()]
    assert written_keys == sorted(written_keys, key=lambda key: FULL.index(f"\n{key} = "))
    assert len(written_keys) > 8


def test_a_parameter_of_a_module_can_be_given() -> None:
    text = written(PLANS["open"]).text
    given = {"param_dtype": "bf16", "gradient_accumulation_steps": 3, "clip_norm": 0.5, "lr": 1e-4}
    plan = read(text, "m.py", given).plan
    assert (plan.precision.compute, plan.batch.accumulation, plan.clipping.max_norm) == ("bf16", 3, 0.5)
    assert plan.optimizer is not None
    assert plan.optimizer.arguments["lr"] == 1e-4
    wrong = dict.fromkeys(given, "x")
    assert opened(read(text, "m.py", wrong).plan.model_dump()) == opened(read(text, "m.py").plan.model_dump())
