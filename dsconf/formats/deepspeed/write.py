"""From the Plan to a DeepSpeed config, with the outcome of every field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dsconf.formats.deepspeed.history import load_history
from dsconf.formats.deepspeed.write_draft import Draft
from dsconf.formats.deepspeed.write_optimizer import write_optimizer
from dsconf.formats.deepspeed.write_precision import in_zero_bf16_optimizer, write_precision
from dsconf.formats.deepspeed.write_schedule import write_schedule
from dsconf.formats.deepspeed.write_sharding import write_offload, write_sharding
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import UNTRAINED, UP_TO_SCRIPT, Request, Writing
from dsconf.plan import Plan, Unresolved

_TOTAL, _MICRO, _STEPS = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
)  # fmt: skip
_DERIVED = "it follows from train_batch_size"
_DIVIDED = "with tensor parallelism DeepSpeed counts every GPU in it, and groups of them see the same samples"
_CHECK = "bf16.check_grad_overflow"
_UNITS = "DeepSpeed gathers each layer when it runs: it has no units"
_GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"


def write(plan: Plan, request: Request) -> Writing:
    """Write a Plan as the text of a ds_config.json.

    JSON holds no comments: nothing of the `request` is in it. Fields that no key expresses land as "unsupported" where
    training would differ, and the config goes without them.
    """
    config, landings = drafted(plan)
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return Writing(text, landings, needs_of(config))


def config_of(plan: Plan) -> dict[str, Any]:
    """The config alone, for files that embed it."""
    return drafted(plan)[0]


def drafted(plan: Plan) -> tuple[dict[str, Any], Mapping[str, Landing]]:
    """The config, and what became of each field."""
    draft = Draft(plan)
    _batch(draft)
    _clipping(draft)
    write_precision(draft)
    write_optimizer(draft)
    write_schedule(draft)
    write_sharding(draft)
    write_offload(draft)
    _not_finite(draft)
    _parallelism(draft)
    _model(draft)
    _launch(draft)
    return draft.config, draft.landings


def needs_of(config: Mapping[str, Any]) -> str:
    """The oldest DeepSpeed that has all keys of a config; "" where every known one has them."""
    history = load_history()
    order: list[str] = history["versions"]
    since = [history["keys"].get(path, {}).get("since") for path in paths(config)]
    places = [order.index(version) for version in since if version is not None]
    return f"DeepSpeed >= {order[max(places)]}" if places else ""


def paths(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted paths of all keys of a config, those of sections included."""
    for name, value in section.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def _batch(draft: Draft) -> None:
    batch = draft.plan.batch
    total = isinstance(batch.total, int)
    divided = draft.plan.parallelism.tensor > 1
    if divided and isinstance(batch.micro, int) and isinstance(batch.accumulation, int):
        draft.land("batch.total", "approximate", "", _DIVIDED)
    elif batch.total is None:
        draft.land("batch.total", "exact", "", "micro batch x accumulation x ranks")
    else:
        draft.set(_TOTAL, "batch.total", batch.total)
    if batch.micro is None:
        action = f"write {_MICRO}, the batch_size of your DataLoader"
        draft.land("batch.micro", "needs-value", _MICRO, "DeepSpeed needs the size of a batch", action)
    elif isinstance(batch.micro, Unresolved) and total and isinstance(batch.accumulation, int):
        draft.land("batch.micro", "exact", "", _DERIVED)
    else:
        draft.set(_MICRO, "batch.micro", batch.micro)
    if batch.accumulation is None:
        action = f"write {_STEPS}, the number of micro batches per step"
        draft.land("batch.accumulation", "needs-value", _STEPS, "DeepSpeed takes 1", action)
    elif isinstance(batch.accumulation, Unresolved) and total and isinstance(batch.micro, int):
        draft.land("batch.accumulation", "exact", "", _DERIVED)
    else:
        note = "" if batch.accumulation == 1 else "engine.backward() divides the loss by it"
        draft.set(_STEPS, "batch.accumulation", batch.accumulation, note)


def _clipping(draft: Draft) -> None:
    """Write the bound, which has another default in every second version: 0 stands for none."""
    norm, field = draft.plan.clipping.max_norm, "clipping.max_norm"
    if norm is None or (isinstance(norm, float) and not math.isfinite(norm)):
        draft.set("gradient_clipping", field, 0.0, "nothing is clipped")
    elif isinstance(norm, Unresolved):
        draft.set("gradient_clipping", field, norm)
    else:
        note = "where it acts, its factor rounds differently from torch's"
        draft.set("gradient_clipping", field, norm, note, "close")


def _not_finite(draft: Draft) -> None:
    """Write whether a step without a finite norm is left out, where a key decides it."""
    wanted, field = draft.plan.clipping.skips_not_finite, "clipping.skips_not_finite"
    precision = draft.plan.precision
    decided = draft.stage in (1, 2) and precision.compute == "bf16" and not in_zero_bf16_optimizer(draft)
    does = draft.stage > 0 or precision.compute in ("bf16", "fp16") or precision.autocast == "fp16"
    if wanted is None:
        draft.land(field, "exact")
    elif decided:
        draft.set(_CHECK, field, wanted)
    elif wanted is does:
        draft.land(field, "exact", "", "as DeepSpeed does it in any case")
    elif wanted:
        note = "without ZeRO DeepSpeed takes such a step in fp32, and has NaN for its weights"
        draft.land(field, "approximate", "", note, "choose ZeRO stage 1 or more")
    else:
        draft.land(field, "approximate", "", "DeepSpeed leaves out a step whose norm is not finite")


def _parallelism(draft: Draft) -> None:
    parallel = draft.plan.parallelism
    field = "parallelism.tensor"
    if parallel.tensor > 1:
        note = "DeepSpeed divides the layers by its own rules, those of the model's tp_plan where it has one"
        draft.set("tensor_parallel.autotp_size", field, parallel.tensor, note, "close")
    else:
        draft.land(field, "exact", "", "no layer is divided")
    styles = draft.landings[field]
    draft.landings["parallelism.block_styles"] = draft.landings["parallelism.root_styles"] = styles
    field = "parallelism.sequence"
    if parallel.sequence > 1:
        note = "Ulysses: the key alone changes the arithmetic of batches"
        draft.set("sequence_parallel_size", field, parallel.sequence, note, "approximate")
        action = "give deepspeed.initialize the mpu of UlyssesSPAttentionHF.register_with_transformers"
        draft.landings[field] = draft.landings[field]._replace(action=action)
    else:
        draft.land(field, "exact", "", "no sequence is divided")
    if parallel.context > 1:
        note = "DeepSpeed has no ring attention"
        action = "divide sequences as Ulysses does (sequence parallelism) instead"
        draft.land("parallelism.context", "unsupported", "", note, action)
    else:
        draft.land("parallelism.context", "exact", "", "no sequence is divided")


def _model(draft: Draft) -> None:
    """What concerns the model and its files rather than a step."""
    wrapping, checkpoint = draft.plan.wrapping, draft.plan.checkpoint
    for name in ("block_classes", "separate_ends", "min_params", "root_only"):
        draft.land(f"wrapping.{name}", "no-effect", "", _UNITS)
    action = None
    if wrapping.unused_parameters and draft.stage == 3:
        action = "name the class of the expert layers in zero_optimization.leaf_module.classes"
    draft.land("wrapping.unused_parameters", "exact", "", "", action)
    field = "checkpoint.weights"
    if draft.stage == 3 and checkpoint.weights is not None:
        note = "save_16bit_model() saves whole weights in 16 bits; save_checkpoint() saves shards in any case"
        draft.set(_GATHER, field, checkpoint.weights == "full", note)
    else:
        draft.land(field, "no-effect", "", "below stage 3 every rank has whole weights to save")
    note = "DeepSpeed itself gives all ranks the weights of rank 0"
    draft.land("checkpoint.loads_on_rank_0", "exact", "deepspeed.zero.Init at stage 3", note)
    if draft.plan.recompute:
        action = "call model.gradient_checkpointing_enable(), or torch.utils.checkpoint in the model"
        draft.land("recompute", "exact", "", "no key of DeepSpeed does it: the script has to", action)
    else:
        draft.land("recompute", "exact")


def _launch(draft: Draft) -> None:
    launch = draft.plan.launch
    nodes = launch.machines
    if nodes is None and launch.world_size and launch.gpus_per_node:
        nodes = -(-launch.world_size // launch.gpus_per_node)
    world = draft.plan.world
    gpus = launch.gpus_per_node or (world if nodes in (None, 1) else None)
    options = [f"--num_nodes {nodes}"] if nodes else []
    options += [f"--num_gpus {gpus}"] if gpus else []
    command = " ".join(["deepspeed", *options, "train.py"])
    for field in ("launch.world_size", "launch.gpus_per_node", "launch.machines", "batch.world_size"):
        draft.land(field, "exact", command if options else "")
    draft.landings |= UNTRAINED | UP_TO_SCRIPT
