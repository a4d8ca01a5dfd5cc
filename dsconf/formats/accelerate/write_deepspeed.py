"""From a DeepSpeed config to an Accelerate one: with flat keys where they suffice, else with a JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from dsconf.formats.accelerate.write import NEEDS, write_launch
from dsconf.formats.accelerate.write_filled import land_filled
from dsconf.formats.accelerate.write_script import duties
from dsconf.formats.accelerate.yaml_text import heading, lines_of
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request, Writing
from dsconf.formats.yaml_lines import Line
from dsconf.plan import Plan

FILE = "ds_config.json"
"""The name of the JSON that is written beside the YAML."""
_ZERO = "zero_optimization"
_MICRO = "train_micro_batch_size_per_gpu"
_GATHER = "stage3_gather_16bit_weights_on_model_save"
_FLAT = {
    "zero_stage": "sharding.partition",
    "gradient_accumulation_steps": "batch.accumulation",
    "gradient_clipping": "clipping.max_norm",
    "offload_optimizer_device": "offload.optimizer",
    "offload_param_device": "offload.parameters",
    "mixed_precision": "precision.compute",
}
_OVERWRITTEN = ("steps_per_print", "zero_allow_untested_optimizer")
"""Keys to which Accelerate gives a value of its own."""
_PRECISION = {
    "bf16": ({"enabled": True},),
    "fp16": ({"enabled": True, "auto_cast": True},),
}
"""By mixed_precision the section that it stands for."""


class DeepSpeed(NamedTuple):
    """A DeepSpeed config, and what became of the fields of the Plan in it."""

    settings: Mapping[str, Any]
    landings: Mapping[str, Landing]
    path: str | None = None
    """The file that holds it, where there is one already."""


def write_deepspeed(plan: Plan, request: Request, inner: DeepSpeed) -> Writing:
    """Write the YAML with which `accelerate launch` trains as `inner` says."""
    settings = _completed(inner.settings, plan)
    flat = flat_keys(settings)
    landings = dict(inner.landings)
    lines = [Line("compute_environment", "LOCAL_MACHINE")]
    lines.append(Line("distributed_type", "DEEPSPEED", request.labels.get("sharding.partition", "")))
    beside: dict[str, str] = {}
    path = FILE
    if flat is None:
        path = inner.path if inner.path is not None and settings == inner.settings else FILE
        if path is not inner.path:
            beside = {FILE: json.dumps(settings, indent=2, ensure_ascii=False) + "\n"}
        section = [Line("deepspeed_config_file", path, "from the folder where the run starts")]
        _land_file(landings, settings, path)
    else:
        word = flat.pop("mixed_precision")
        lines.append(Line("mixed_precision", word, request.labels.get(_FLAT["mixed_precision"], "")))
        section = [
            Line(key, value, request.labels.get(_FLAT.get(key, ""), "")) for key, value in flat.items()
        ]
        _land_flat(landings, {**flat, "mixed_precision": word})
    _layout(plan, request, lines, landings)
    write_launch(plan, request, lines, landings)
    if any(line.key == "num_machines" and line.value != 1 for line in lines):
        section.append(Line("deepspeed_multinode_launcher", "standard", "start it on each machine"))
    lines.append(Line("deepspeed_config", section))
    land_filled(plan, landings, settings, path if flat is None else None)
    left = duties(landings, request.labels)
    text = "\n".join([*heading(request.origin, left), *lines_of(lines), ""])
    return Writing(text, landings, NEEDS, beside)


def flat_keys(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keys that make Accelerate build a DeepSpeed config, with mixed_precision; None where they can't say all."""
    rest = {key: value for key, value in settings.items() if key not in _OVERWRITTEN}
    found: dict[str, Any] = {}
    for name in ("train_batch_size", _MICRO):
        if rest.pop(name, "auto") != "auto":
            return None
    steps, norm = rest.pop("gradient_accumulation_steps", 1), rest.pop("gradient_clipping", "auto")
    if norm == 0:  # Accelerate would leave it out, and DeepSpeed then clips
        return None
    found |= {"gradient_accumulation_steps": steps} if steps != "auto" else {}
    found |= {"gradient_clipping": norm} if norm != "auto" else {}
    zero = _zero(rest.pop(_ZERO, {}))
    word = _word(rest)
    if zero is None or word is None or rest:
        return None
    return {**zero, **found, "mixed_precision": word}


def _zero(section: object) -> dict[str, Any] | None:
    if not isinstance(section, Mapping):
        return None
    rest = dict(section)
    found: dict[str, Any] = {"zero_stage": rest.pop("stage", 0)}
    if not isinstance(found["zero_stage"], int) or isinstance(found["zero_stage"], bool):
        return None
    for name in ("optimizer", "param"):
        part = rest.pop(f"offload_{name}", None)
        if part is None:
            continue
        if not isinstance(part, Mapping) or part.keys() - {"device"} or part.get("device") == "nvme":
            return None
        found[f"offload_{name}_device"] = part.get("device", "none")
    gathers = rest.pop(_GATHER, False)
    if rest or not isinstance(gathers, bool):
        return None
    if found["zero_stage"] == 3:
        if not gathers:  # lint warns of the flat key, not of that in a file
            return None
        found["zero3_save_16bit_model"] = True
    return found


def _word(rest: dict[str, Any]) -> str | None:
    """The mixed_precision of what is left of a config, which loses its sections of precision."""
    sections = {name: rest.pop(name, {"enabled": False}) for name in _PRECISION}
    on = {name: section for name, section in sections.items() if section != {"enabled": False}}
    if not on:
        return "no"
    name, section = next(iter(on.items()))
    return name if len(on) == 1 and section in _PRECISION[name] else None


def _completed(settings: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The settings with what Accelerate has to find in them; "auto" is what it fills from the script."""
    found = dict(settings)
    zero = found.get(_ZERO, False)
    if isinstance(zero, bool):  # DeepSpeed takes it for a stage
        found[_ZERO] = {"stage": int(zero)}
    if not found.keys() & {"train_batch_size", _MICRO}:
        found[_MICRO] = "auto"
    steps = _steps(found, plan)
    if steps is not None:
        found.setdefault("gradient_accumulation_steps", steps)
    return found


def _steps(settings: Mapping[str, Any], plan: Plan) -> int | str | None:
    """The micro batches per step where no key says them: Accelerate takes 1 then, and reckons no further."""
    total, micro, world = settings.get("train_batch_size"), settings.get(_MICRO), plan.launch.world_size
    if isinstance(total, int) and isinstance(micro, int) and world:
        return total // (micro * world)
    return "auto" if plan.batch.accumulation is None else None


def _land_file(landings: dict[str, Landing], settings: Mapping[str, Any], path: str) -> None:
    """What Accelerate does with a file beside what DeepSpeed does with it."""
    for name in ("bf16", "fp16"):
        section = settings.get(name)
        if isinstance(section, Mapping) and section.get("enabled") == "auto":
            action = (
                "accelerate launch --mixed_precision bf16 (or fp16, no), which may not stand beside a file"
            )
            landings["precision.compute"] = Landing("needs-value", f"{name}.enabled in {path}", "", action)


def _land_flat(landings: dict[str, Landing], flat: Mapping[str, Any]) -> None:
    for key, field in _FLAT.items():
        if key in flat and field in landings:
            landings[field] = landings[field]._replace(target=f"{key}: {flat[key]}")


def _layout(plan: Plan, request: Request, lines: list[Line], landings: dict[str, Landing]) -> None:
    size, field = plan.parallelism.sequence, "parallelism.sequence"
    if size <= 1:
        return
    label = request.labels.get(field, "")
    entries = [Line("parallelism_config_sp_size", size, label)]
    world = plan.world
    target = f"parallelism_config_sp_size: {size}"
    if world is None:
        action = "say the number of ranks with --world-size"
        landings[field] = Landing(
            "needs-value", target, "parallelism_config_dp_shard_size is ranks / sp_size", action
        )
    elif world % size:
        landings[field] = Landing("unsupported", "", f"{world} ranks don't divide into groups of {size}")
        return
    else:
        entries.append(Line("parallelism_config_dp_shard_size", world // size))
        landings[field] = Landing("exact", target)
    lines.append(Line("parallelism_config", entries))
