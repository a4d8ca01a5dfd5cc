"""Functions that dsconf has emitted, to the fields of the Plan that they stand for."""

from __future__ import annotations

from typing import Any

from dsconf.formats.fsdp2.read_constants import Emitted
from dsconf.formats.fsdp2.read_emitted_schedule import optimizer_of, schedule_of
from dsconf.formats.fsdp2.read_sharding import last_only
from dsconf.formats.fsdp2.read_styles import read_styles
from dsconf.formats.fsdp2.read_values import Table, plain
from dsconf.plan import (
    Batch,
    Clipping,
    LossScaling,
    Offload,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    Unresolved,
    Wrapping,
)


def read_emitted(emitted: Emitted, plan: Plan) -> Plan:
    """The Plan with what the known functions say; the rest of it was read from the other ones."""
    update: dict[str, Any] = {}
    sharding, precision = plan.sharding, plan.precision
    if emitted.has("parallelize"):
        sharding = _sharding(emitted, plan)
        update["offload"] = _offload(emitted)
        update["wrapping"] = _wrapping(emitted)
        update["parallelism"] = _parallelism(emitted)
        precision = _precision(emitted, sharding, plan)
        update["recompute"] = (
            _flag(emitted, "RECOMPUTED", "checkpoint_wrapper", "recompute") or plan.recompute
        )
    elif emitted.on("REDUCED_LAST") and sharding.partition == "gradients":
        sharding = sharding.model_copy(update={"partition": "optimizer"})
        precision = precision.model_copy(update={"accumulate": precision.reduce})
    if emitted.has("finish"):
        precision = _finished(emitted, precision)
    if emitted.has("train_step"):
        update["clipping"] = _clipping(emitted)
        precision = precision.model_copy(update={"scaling": _scaling(emitted)})
    if emitted.has("build_optimizer"):
        update["optimizer"] = optimizer_of(emitted)
    if emitted.has("build_scheduler"):
        update["schedule"] = schedule_of(emitted)
    update["batch"] = _batch(emitted, plan, update.get("parallelism", plan.parallelism).tensor)
    return plan.model_copy(update={**update, "sharding": sharding, "precision": precision})


def _clipping(emitted: Emitted) -> Clipping:
    norm = emitted.get("CLIP_NORM", "clipping.max_norm") if emitted.on("CLIPPED") else None
    skips = emitted.on("SKIPS")
    emitted.notes.take("math.isfinite(grad_norm)", "clipping.skips_not_finite", skips)
    return Clipping(max_norm=float(norm) if isinstance(norm, int) else norm, skips_not_finite=skips)


def _batch(emitted: Emitted, plan: Plan, tensor: int) -> Batch:
    found = plan.batch.model_dump()
    for name, constant in (("micro", "MICRO_BATCH_SIZE"), ("total", "TRAIN_BATCH_SIZE")):
        value = emitted.notes.run.constant(constant)
        size = plain(value)
        if isinstance(size, int) and value is not None:
            emitted.notes.take(constant, f"batch.{name}", value)
            found[name] = size
    if emitted.has("train_step"):
        found["accumulation"] = emitted.get("GRADIENT_ACCUMULATION_STEPS", "batch.accumulation")
    if emitted.has("parallelize"):
        ranks = emitted.get("WORLD_SIZE", "batch.total") if emitted.on("FIXED_WORLD") else None
        found["world_size"] = ranks // tensor if isinstance(ranks, int) else None
    sizes = [found[name] for name in ("micro", "accumulation", "world_size")]
    if all(isinstance(each, int) for each in sizes):
        found["total"] = sizes[0] * sizes[1] * sizes[2]
    return Batch.model_validate(found)


def _sharding(emitted: Emitted, plan: Plan) -> Sharding:
    reshard = emitted.get("RESHARD_AFTER_FORWARD", "sharding.partition")
    if not isinstance(reshard, bool) and isinstance(reshard, int):
        emitted.notes.fields["RESHARD_AFTER_FORWARD"] = "sharding.reshard_after_forward"
    partition = "parameters" if reshard else "gradients"
    last = emitted.on("REDUCED_LAST") if emitted.has("train_step") else last_only(emitted.notes)
    if not reshard and last:
        partition = "optimizer"
        emitted.notes.take("set_requires_gradient_sync", "sharding.partition", "on the last micro batch only")
    if emitted.on("REPLICATED"):
        partition = "nothing"
        emitted.notes.take("init_device_mesh", "sharding.partition", "groups of one rank")
    return Sharding.model_validate(
        {
            "partition": partition,
            "reshard_after_forward": reshard if isinstance(reshard, bool | int) else True,
            "group": emitted.get("GROUP_SIZE", "sharding.group") if emitted.on("GROUPED") else None,
            "own_linear": False,
            "sums_gradients": _flag(
                emitted, "SUMMED", "set_gradient_divide_factor", "sharding.sums_gradients"
            ),
        }
    )


def _flag(emitted: Emitted, flag: str, key: str, field: str) -> bool:
    if emitted.on(flag):
        emitted.notes.take(key, field, True)
    return emitted.on(flag)


def _offload(emitted: Emitted) -> Offload:
    if not emitted.on("OFFLOADED"):
        return Offload()
    emitted.notes.take("CPUOffloadPolicy", "offload.parameters", True)
    emitted.notes.take("CPUOffloadPolicy (optimizer)", "offload.optimizer", True)
    pinned = emitted.get("PIN_MEMORY", "offload.pinned")
    return Offload(parameters=True, optimizer=True, pinned=bool(pinned))


def _wrapping(emitted: Emitted) -> Wrapping:
    classes = emitted.get("BLOCK_CLASSES", "wrapping.block_classes") if emitted.on("NAMED_BLOCKS") else ()
    least = emitted.get("MIN_PARAMS", "wrapping.min_params") if emitted.on("SIZED_BLOCKS") else None
    return Wrapping(
        block_classes=tuple(map(str, classes)) if isinstance(classes, tuple) else (),
        min_params=least if isinstance(least, int) else None,
        separate_ends=_separate_ends(emitted),
        root_only=_flag(emitted, "ROOT_ONLY", "fully_shard(model)", "wrapping.root_only"),
        unused_parameters=_flag(
            emitted, "UNUSED_PARAMETERS", "set_reduce_scatter_unused_params", "wrapping.unused_parameters"
        ),
    )


def _separate_ends(emitted: Emitted) -> bool:
    if emitted.on("SEPARATE_ENDS"):
        note = "embeddings and heads are units of their own; no number changes where they are not"
        emitted.notes.say("find_units", True, "exact", note)
    return emitted.on("SEPARATE_ENDS")


def _parallelism(emitted: Emitted) -> Parallelism:
    if not emitted.on("TENSOR_PARALLEL"):
        return Parallelism()
    size = emitted.get("TENSOR_SIZE", "parallelism.tensor")
    foreach = emitted.value("FOREACH")
    if foreach is not None:
        emitted.notes.say("FOREACH", foreach, "no-effect", "parameters lie on two meshes")
    styles: dict[str, dict[str, str]] = {}
    for name, constant in (("block_styles", "BLOCK_STYLES"), ("root_styles", "ROOT_STYLES")):
        table = emitted.value(constant)
        styles[name] = read_styles(emitted.notes, constant, table) if isinstance(table, Table) else {}
    return Parallelism(tensor=size if isinstance(size, int) else 1, **styles)


# ---- dtypes -----------------------------------------------------------------------------------------------


def _precision(emitted: Emitted, sharding: Sharding, plan: Plan) -> Precision:
    mixed = emitted.on("MIXED_PRECISION")
    compute = emitted.dtype("PARAM_DTYPE", "precision.compute") if mixed else "fp32"
    reduce = emitted.dtype("REDUCE_DTYPE", "precision.reduce")
    if isinstance(reduce, Unresolved) or reduce == compute:
        reduce = None
    masters: Any = "fp32"
    if mixed and not emitted.on("WIDE_MASTERS"):
        masters = compute if isinstance(compute, str) else "bf16"
        emitted.notes.take("parameters", "precision.masters", f"in {masters}, as they are computed with")
    whole = sharding.partition in ("nothing", "optimizer")
    accumulate = reduce if whole else masters
    found: dict[str, Any] = {
        "compute": compute,
        "reduce": reduce,
        "accumulate": None if accumulate == compute else accumulate,
        "masters": masters,
        "autocast": plan.precision.autocast,
        "scaling": plan.precision.scaling,
    }
    if mixed:
        casts = "all" if emitted.on("UNITS_CAST") else "model" if emitted.on("ROOT_CASTS") else "none"
        emitted.notes.take(
            "MixedPrecisionPolicy.cast_forward_inputs", "precision.units_cast", casts != "none"
        )
        found["units_cast"] = casts
    if mixed and masters == "fp32":
        found["rounded_masters"] = emitted.on("ROUNDED_MASTERS")
    return Precision.model_validate(found)


def _finished(emitted: Emitted, precision: Precision) -> Precision:
    """The dtypes with what the function `finish` casts."""
    update: dict[str, Any] = {}
    if emitted.on("AUTOCAST"):
        update["autocast"] = emitted.dtype("AUTOCAST_DTYPE", "precision.autocast")
    if emitted.on("INPUTS_CAST"):
        update["casts_inputs"] = _flag(emitted, "INPUTS_CAST", "cast_inputs", "precision.casts_inputs")
    if emitted.on("BUFFERS_CAST") or emitted.on("BUFFERS_KEPT"):
        update["buffers"] = emitted.dtype("BUFFER_DTYPE", "precision.buffers")
    if emitted.on("BUFFERS_KEPT"):
        pattern = emitted.get("FP32_BUFFERS", "precision.fp32_buffers")
        if isinstance(pattern, str):
            update["fp32_buffers"] = tuple(part.replace(".*", "*") for part in pattern.split("|"))
    return precision.model_copy(update=update)


def _scaling(emitted: Emitted) -> LossScaling | None:
    if not emitted.on("SCALED"):
        return None
    root = "precision.scaling"
    if not emitted.on("DYNAMIC"):
        scale = emitted.get("LOSS_SCALE", root)
        return LossScaling(scale=scale) if isinstance(scale, int | float) else None
    emitted.notes.take("LossScaler", root, True)
    found = {
        field: emitted.get(constant, f"{root}.{field}")
        for field, constant in (
            ("scale", "LOSS_SCALE"),
            ("window", "SCALE_WINDOW"),
            ("hysteresis", "HYSTERESIS"),
            ("minimum", "MIN_LOSS_SCALE"),
        )
    }
    if not all(isinstance(each, int | float) for each in found.values()):
        return None
    return LossScaling(refill=emitted.on("REFILLED"), **found)
