"""Facts about number formats: loss scaling, accumulation, and which optimizer class of DeepSpeed keeps the masters."""

from __future__ import annotations

from dsconf.config.context import Gpu, Model
from dsconf.config.dtypes import short_name
from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_LARGEST_POWER = 4096
"""More than any scale can be: from 2**1024 on no float holds it."""
DEFAULT_POWER = 16
"""DeepSpeed's own initial_scale_power."""


def initial_loss_scale(read: Reader) -> object:
    """The scale with which dynamic loss scaling starts."""
    power = read.value("fp16.initial_scale_power")
    if not isinstance(power, int) or abs(power) > _LARGEST_POWER:
        return UNKNOWN
    return 2**power if power >= 0 else 0.5**-power


def power_refused(read: Reader) -> object:
    """Whether 2 to the initial_scale_power can't be reckoned in a DeepSpeed that does not convert it before."""
    path = "fp16.initial_scale_power"
    if read.since("0.17.6") or not read.present(path):
        return False
    power = read.written(path)
    if power is UNKNOWN:
        return UNKNOWN
    # Of an integer Python makes an integer, however large; a float holds no more than this.
    return not isinstance(power, int | float) or power >= (2**63 if isinstance(power, int) else 1024)


def overflows_before_fall(read: Reader) -> object:
    """Overflows in a row until the dynamic scale falls for the first time: `hysteresis`, but 1 at stage 0.

    None where it never does.
    """
    stage, hysteresis = read.value("zero_optimization.stage"), read.value("fp16.hysteresis")
    if stage == 0:
        return 1
    if not isinstance(stage, int) or not isinstance(hysteresis, int):
        return UNKNOWN
    return hysteresis if hysteresis > 0 else None


def steps_until_default_scale(read: Reader) -> object:
    """Steps that overflow and are skipped until the dynamic scale has come down to DeepSpeed's default 2**16."""
    power, before = read.value("fp16.initial_scale_power"), read.fact("overflows_before_fall")
    if not isinstance(power, int) or not isinstance(before, int):
        return UNKNOWN
    return max(0, power - DEFAULT_POWER + before - 1)


def unused_scaling_keys(read: Reader) -> object:
    """The keys of dynamic loss scaling that are written, in words."""
    names = (
        "initial_scale_power",
        "loss_scale_window",
        "hysteresis",
        "consecutive_hysteresis",
        "min_loss_scale",
    )
    return ", ".join(name for name in names if read.present(f"fp16.{name}"))


def accumulation_format(read: Reader) -> object:
    """The accumulation dtype by its short name."""
    value = read.fact("accumulation_dtype")
    return short_name(value) if isinstance(value, str) else UNKNOWN


def parameter_format(read: Reader) -> object:
    """`data_types.param_dtype` by its short name, None where it is left to the precision section."""
    value = read.value("data_types.param_dtype")
    return short_name(value) if isinstance(value, str) else value


def autocast_format(read: Reader) -> object:
    """`torch_autocast.dtype` by its short name, None where it is not written."""
    if not read.present("torch_autocast.dtype"):
        return None
    value = read.value("torch_autocast.dtype")
    return short_name(value) if isinstance(value, str) else UNKNOWN


def negative_loss_scale(read: Reader) -> object:
    """`fp16.loss_scale` where it is negative and refused for that, else None."""
    scale = read.written("fp16.loss_scale")
    negative = isinstance(scale, int | float) and scale < 0
    return scale if negative and read.value("fp16.loss_scale") is UNKNOWN else None


def undotted_safe_module(read: Reader) -> object:
    """The first of `lower_precision_safe_modules` that is no name of a class in a package, None where all are.

    A text in place of the list counts as a whole.
    """
    modules = read.written("torch_autocast.lower_precision_safe_modules")
    if isinstance(modules, str):
        return modules or None  # DeepSpeed goes over its letters
    if not isinstance(modules, list | dict):
        return None
    return next((name for name in modules if isinstance(name, str) and "." not in name), None)


def bf16_optimizer(read: Reader) -> object:
    """Whether DeepSpeed takes its BF16_Optimizer, as it does at stage 1 for bf16 that is accumulated in fp32.

    Not where the optimizer is offloaded to the CPU; an NVMe device does not count there.
    """
    given = (
        read.fact("precision"),
        read.value("zero_optimization.stage"),
        read.fact("accumulation_format"),
        read.value("zero_optimization.offload_optimizer.device"),
    )
    model, stage, accumulation, device = given
    if (
        model not in ("bf16", UNKNOWN)
        or stage not in (1, UNKNOWN)
        or accumulation not in ("fp32", UNKNOWN)
        or device == "cpu"
    ):
        return False
    return UNKNOWN if UNKNOWN in given else True


def gpu_without_bf16(read: Reader) -> object:
    """The name of the GPU, where one is given that does not compute in bf16; else None."""
    gpu = read.hint("gpu")
    return gpu.name if isinstance(gpu, Gpu) and gpu.bf16 is False else None


def gpu_without_fp16(read: Reader) -> object:
    """The name of the GPU, where one is given on which DeepSpeed refuses fp16; else None."""
    gpu = read.hint("gpu")
    return gpu.name if isinstance(gpu, Gpu) and gpu.name == "P100" else None


def model_dtype(read: Reader) -> object:
    """The dtype of the model's weights by its short name, None where no model is given that says it."""
    model = read.hint("model")
    return short_name(model.dtype) if isinstance(model, Model) and model.dtype else None
