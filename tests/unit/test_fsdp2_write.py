"""What the writer of modules says and writes, from Plans that no DeepSpeed config gives."""

from __future__ import annotations

import pytest

from dsconf.formats.choices import Style
from dsconf.formats.fsdp2.write import write
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request, Writing
from dsconf.plan import (
    Batch,
    Checkpoint,
    Clipping,
    Launch,
    LossScaling,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    TrainerSchedule,
    Wrapping,
)

DIVIDED = Plan(
    batch=Batch(accumulation=1),
    sharding=Sharding(partition="parameters"),
    parallelism=Parallelism(tensor=2, block_styles={"up": "colwise", "down": "rowwise"}),
    wrapping=Wrapping(block_classes=("Block",)),
)
POLYNOMIAL = TrainerSchedule(name="polynomial", warmup_steps=5)


def written(plan: Plan, style: Style = "module") -> Writing:
    return write(plan, Request("x", dict.fromkeys(("schedule.name", "batch.accumulation"), "a key"), style))


def landed(plan: Plan, field: str, style: Style = "module") -> Landing:
    return written(plan, style).landings[field]


@pytest.mark.parametrize("skips", [True, False, None])
@pytest.mark.parametrize("scaled", [True, False])
def test_steps_are_left_out_where_the_plan_or_its_loss_scale_says_so(
    skips: bool | None, scaled: bool
) -> None:
    scaling = LossScaling(scale=2.0, window=10, hysteresis=1, refill=False, minimum=1.0)
    precision = Precision(compute="fp16", scaling=scaling) if scaled else Precision()
    plan = Plan(batch=Batch(accumulation=1), precision=precision, clipping=Clipping(skips_not_finite=skips))
    wanted = skips is not False or scaled
    assert ("skipped = not math.isfinite(grad_norm)" in written(plan).text) is wanted
    assert ("Leave out optimizer.step()" in written(plan, "minimal").text) is wanted
    found = landed(plan, "clipping.skips_not_finite")
    assert ("left out" in found.note) is wanted
    assert found.outcome == ("approximate" if scaled and skips is False else "exact")


@pytest.mark.parametrize(
    ("launch", "target"),
    [
        (Launch(gpus_per_node=8), "torchrun"),
        (Launch(gpus_per_node=8, world_size=16), "torchrun, as the docstring says"),
    ],
)
def test_the_docstring_is_named_where_it_has_the_command(launch: Launch, target: str) -> None:
    writing = written(Plan(batch=Batch(accumulation=1), launch=launch))
    assert writing.landings["launch.gpus_per_node"].target == target
    assert ("    torchrun " in writing.text) is (target != "torchrun")


@pytest.mark.parametrize("style", ["module", "minimal"])
def test_a_schedule_that_no_style_writes_is_left_to_the_script(style: Style) -> None:
    plan = Plan(batch=Batch(accumulation=1), schedule=POLYNOMIAL)
    found = landed(plan, "schedule.name", style)
    assert (found.outcome, "transformers.get_scheduler" in str(found.action)) == ("unsupported", True)
    assert "--style module writes it" not in written(plan, style).text


def test_a_schedule_that_the_module_writes_is_named_by_the_minimal_style() -> None:
    plan = Plan(
        batch=Batch(accumulation=1), schedule=TrainerSchedule(name="linear", warmup_steps=5, total_steps=9)
    )
    assert "a key: build_scheduler() as --style module writes it" in written(plan, "minimal").text


@pytest.mark.parametrize(
    ("wrapping", "why"),
    [(Wrapping(min_params=10), "chosen by size"), (Wrapping(root_only=True), "the whole model")],
    ids=str,
)
def test_tensor_parallelism_needs_blocks_as_units(wrapping: Wrapping, why: str) -> None:
    found = written(DIVIDED.model_copy(update={"wrapping": wrapping}))
    landing = found.landings["parallelism.tensor"]
    assert (landing.outcome, why in landing.note, "--blocks" in str(landing.action)) == (
        "unsupported",
        True,
        True,
    )
    assert "parallelize_module" not in found.text
    assert landed(DIVIDED, "parallelism.tensor").outcome == "close"


def test_ends_are_units_of_their_own_but_for_tensor_parallelism() -> None:
    ends = DIVIDED.wrapping.model_copy(update={"separate_ends": True})
    plan = DIVIDED.model_copy(update={"wrapping": ends})
    assert "find_units" not in written(plan).text
    assert landed(plan, "wrapping.separate_ends").outcome == "close"
    whole = plan.model_copy(update={"parallelism": Parallelism()})
    assert "*find_units(model)" in written(whole).text
    assert landed(whole, "wrapping.separate_ends") == Landing("exact", "find_units()")


def test_recomputation_leaves_ends_in_the_root_and_needs_blocks() -> None:
    plan = Plan(recompute=True, wrapping=Wrapping(block_classes=("Block",), separate_ends=True))
    assert "*recomputed(model)" in written(plan).text
    assert landed(plan, "recompute") == Landing("exact", "checkpoint_wrapper(block)")
    assert landed(plan, "wrapping.separate_ends").outcome == "close"
    alone = Plan(recompute=True, wrapping=Wrapping(root_only=True))
    assert "recomputed" not in written(alone).text
    assert landed(alone, "recompute").outcome == "approximate"
    assert landed(Plan(recompute=False), "recompute") == Landing("exact", "")
    assert "recompute" not in written(Plan()).landings


def test_named_blocks_come_before_a_size_and_before_the_whole_model() -> None:
    named = Wrapping(block_classes=("Block",), min_params=10, root_only=True)
    for wrapping, text in (
        (named, "BLOCK_CLASSES = ('Block',)"),
        (Wrapping(min_params=10, root_only=True), "MIN_PARAMS = 10"),
    ):
        code = written(Plan(wrapping=wrapping)).text
        assert text in code
        assert "for module in [*find_blocks(model), model]:" in code
    assert "for module in [model]:" in written(Plan(wrapping=Wrapping(root_only=True))).text
    sizes = [landed(Plan(wrapping=wrapping), "wrapping.min_params").outcome for wrapping in (
        named, Wrapping(min_params=10), Wrapping(),
    )]  # fmt: skip
    assert sizes == ["no-effect", "exact", "no-effect"]


@pytest.mark.parametrize(
    ("weights", "outcome", "target"),
    [
        ("full", "exact", "full_state_dict(model)"),
        ("sharded", "exact", "save_checkpoint()"),
        ("local", "approximate", "save_checkpoint()"),
    ],
)
def test_how_weights_are_saved(weights: str, outcome: str, target: str) -> None:
    plan = Plan(checkpoint=Checkpoint.model_validate({"weights": weights}))
    found = landed(plan, "checkpoint.weights")
    assert (found.outcome, found.target) == (outcome, target)
    assert f"def {target.partition('(')[0]}(" in written(plan).text


def test_every_rank_loads_the_model_itself() -> None:
    outcomes = [
        landed(Plan(checkpoint=Checkpoint(loads_on_rank_0=only)), "checkpoint.loads_on_rank_0").outcome
        for only in (True, False, None)
    ]
    assert outcomes == ["approximate", "exact", "exact"]
