"""Facts about the parallel dimensions, compilation and the data library: what excludes what, and what is missing."""

from __future__ import annotations

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_AUTOTP_PRESETS = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")


def autotp_presets(read: Reader) -> object:
    """The names that `tensor_parallel.preset_model` takes, in words."""
    return ", ".join(_AUTOTP_PRESETS)


def autotp_preset(read: Reader) -> object:
    """`tensor_parallel.preset_model` in lower case, "unknown" for a name that is no preset, None for none."""
    name = read.value("tensor_parallel.preset_model")
    if not isinstance(name, str):
        return name
    name = name.lower()
    return (name if name in _AUTOTP_PRESETS else "unknown") if name else None


def autoep_autotp_conflict(read: Reader) -> object:
    """What DeepSpeed does not combine with expert and tensor parallelism together, in words; None for nothing."""
    size = read.value("tensor_parallel.autotp_size")
    presets = [read.value(f"{section}.preset_model") for section in ("tensor_parallel", "expert_parallel")]
    if all(isinstance(name, str) for name in presets) and presets[0] != presets[1]:
        return f'two presets, "{presets[0]}" and "{presets[1]}"'
    if not isinstance(size, int):
        return UNKNOWN
    if size <= 1:
        return None
    if read.given("data_parallel_size") is not None and read.value("sequence_parallel_size") not in (1, None):
        return "sequence parallelism"
    for path in ("compile.deepcompile", "expert_parallel.async_split_plan"):
        if read.value(path) is True:
            return path
    if read.value("use_data_before_expert_parallelism") is True:
        return "use_data_before_expert_parallelism"
    if read.value("expert_parallel.autoep_size") == 1:
        return "an autoep_size of 1"
    for name in ("offload_optimizer", "offload_param"):
        if read.given(f"zero_optimization.{name}") is not None:
            return f"a section {name}, whatever its device"
    return None


def deepcompile_scope(read: Reader) -> object:
    """What DeepCompile changes: "zero", or the pass that stands instead ("autosp", "autotp"); None where it is off."""
    on, passes = read.value("compile.deepcompile"), read.value("compile.passes")
    if on is not True:
        return None if on is False else UNKNOWN
    if passes is not None and not isinstance(passes, list):
        return UNKNOWN
    for name in ("autosp", "autotp"):
        if name in (passes or ()):
            return name
    return "zero"


def deepcompile_offloads(read: Reader) -> object:
    """The offloading passes of DeepCompile that are on, in words: offload_parameters also where ZeRO offloads all."""
    devices = [
        read.value(f"zero_optimization.{name}.device") for name in ("offload_param", "offload_optimizer")
    ]
    on = [
        name
        for name in ("offload_activation", "offload_parameters", "offload_opt_states")
        if read.value(f"compile.{name}") is True or (name == "offload_parameters" and devices == ["cpu"] * 2)
    ]
    return " and ".join(on)


_SCHEDULES = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
}
_METRICS = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics"


def curriculum_gap(read: Reader) -> object:
    """The first key that a metric of the curriculum lacks, as a path below the metrics; None for none."""
    metrics = read.written(_METRICS)
    if read.may_hold(f"{_METRICS}.metric"):
        return UNKNOWN
    for name, metric in metrics.items() if isinstance(metrics, dict) else ():
        if not isinstance(metric, dict):
            continue
        for key in ("min_difficulty", "max_difficulty", "schedule_type"):
            if key not in metric:
                return f"{name}.{key}"
        needed = _SCHEDULES.get(str(metric["schedule_type"]), ())
        schedule = metric.get("schedule_config")
        if needed and "schedule_config" not in metric:
            return f"{name}.schedule_config"
        for key in needed:
            if isinstance(schedule, dict) and key not in schedule:
                return f"{name}.schedule_config.{key}"
    return None


_LTD = "data_efficiency.data_routing.random_ltd"


def random_ltd_gap(read: Reader) -> object:
    """The first key that an enabled random_ltd lacks, as a path below it; None for none."""
    section = read.written(_LTD)
    if read.may_hold(f"{_LTD}.key"):
        return UNKNOWN
    if not isinstance(section, dict):
        return None
    for key in ("total_layer_num", "random_ltd_layer_num", "random_ltd_schedule"):
        if key not in section:
            return key
    schedule = section["random_ltd_schedule"]
    for key in ("min_value", "max_value", "schedule_config", "schedule_type"):
        if isinstance(schedule, dict) and key not in schedule:
            return f"random_ltd_schedule.{key}"
    rate = section.get("layer_token_lr_schedule")
    return "layer_token_lr_schedule.enabled" if isinstance(rate, dict) and "enabled" not in rate else None


def datastates(read: Reader) -> object:
    """Whether `datastates_ckpt` is "off" (absent or false), "meant off" (yet on), or "on"."""
    if not read.present("datastates_ckpt"):
        return "off"
    value = read.written("datastates_ckpt")
    if value is UNKNOWN:
        return UNKNOWN
    if value is False:
        return "off"
    switch = value.get("enabled", True) if isinstance(value, dict) and value else value
    return "on" if switch and switch not in ("false", "False") else "meant off"
