"""Configs that DeepSpeed accepts, and many small damages to them, always the same for one seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from dsconf.formats.deepspeed.keys import load_keys

Config = dict[str, Any]
Keys = tuple[str, ...]
Damage = Callable[[Config, Random], None]

MICRO: Config = {"train_micro_batch_size_per_gpu": 4}
TOTAL: Config = {"train_batch_size": 192}
ADAMW: Config = {
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}
}
WARMUP: Config = {
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 100}}
}
BF16: Config = {"bf16": {"enabled": True}}
FP16: Config = {
    "fp16": {
        "enabled": True,
        "loss_scale": 0,
        "initial_scale_power": 16,
        "loss_scale_window": 1000,
        "hysteresis": 2,
    }
}


def _zero(stage: int, **settings: object) -> Config:
    return {"zero_optimization": {"stage": stage, **settings}}


CPU = {"device": "cpu", "pin_memory": True}
NVME = {"device": "nvme", "nvme_path": "/mnt/nvme", "buffer_count": 4}
BUCKETS = {"reduce_bucket_size": 500000000, "allgather_bucket_size": 5e8, "overlap_comm": True}
STAGE3 = {
    "stage3_prefetch_bucket_size": 50000000,
    "stage3_param_persistence_threshold": 100000,
    "stage3_max_live_parameters": 1e9,
    "sub_group_size": 1e9,
}
BASES: tuple[Config, ...] = (
    MICRO,
    {"train_batch_size": 64},
    {**MICRO, "gradient_accumulation_steps": 3},
    {**TOTAL, "gradient_accumulation_steps": 3},
    {**TOTAL, "train_micro_batch_size_per_gpu": 3},
    {**MICRO, **BF16},
    {**MICRO, **FP16},
    {**MICRO, "fp16": {"enabled": False}, "bf16": {"enabled": True}, "gradient_clipping": 1.0},
    {**MICRO, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, **_zero(2, reduce_bucket_size="auto")},
    {**MICRO, **BF16, **_zero(0)},
    {**MICRO, **BF16, **_zero(1, **BUCKETS), **ADAMW},
    {**MICRO, **BF16, **_zero(2, **BUCKETS), **ADAMW, **WARMUP},
    {**MICRO, **BF16, **_zero(3, **STAGE3), **ADAMW},
    {**TOTAL, **BF16, **_zero(3, **BUCKETS, **STAGE3, contiguous_gradients=True), **ADAMW, **WARMUP},
    {**TOTAL, **FP16, **_zero(2, offload_optimizer=CPU), **ADAMW},
    {**MICRO, **FP16, **_zero(3, offload_optimizer=CPU, offload_param=CPU)},
    {**MICRO, **BF16, **_zero(3, offload_optimizer=NVME, offload_param=NVME), **ADAMW},
    {**MICRO, **BF16, **_zero(2, offload_optimizer={"device": "none"}, offload_param={"device": "none"})},
    {**MICRO, **BF16, **_zero(3, leaf_module={"classes": ["Experts"]}, stage3_gather_16bit_weights_on_model_save=True)},
    {**MICRO, **FP16, **_zero(1, round_robin_gradients=True), "communication_data_type": "fp16"},
    {**MICRO, **BF16, **_zero(1), "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.5},
    {**MICRO, **_zero(1, zero_hpz_partition_size=1), "wall_clock_breakdown": True, "steps_per_print": 10},
    {**MICRO, "fp16": {"enabled": True, "loss_scale": 128.0, "min_loss_scale": 1}},
    {**MICRO, "bf16": {"enabled": True, "immediate_grad_update": True}, **_zero(1)},
    {**MICRO, **BF16, "activation_checkpointing": {"cpu_checkpointing": True}, "zero_allow_untested_optimizer": True},
    {**MICRO, **_zero(2), "flops_profiler": {"enabled": True, "profile_step": 1}, "optimizer": {"type": "SGD"},
     "zero_allow_untested_optimizer": True},
    {**MICRO, **BF16, **_zero(3, overlap_comm="auto", reduce_bucket_size="auto", sub_group_size=1e9), **ADAMW},
    {**MICRO, "gradient_accumulation_steps": 2, "prescale_gradients": False, "gradient_predivide_factor": 1.0},
    {**TOTAL, **BF16, **_zero(2, ignore_unused_parameters=True, allgather_partitions=True)},
    {**MICRO, **FP16, **WARMUP, "optimizer": {"type": "Adam", "params": {"eps": 1e-8}}, "log_level": "info"},
    {**MICRO, **BF16, "sequence_parallel_size": 1, "data_parallel_size": 1},
    {**MICRO, "compile": {"passes": ["z3"]}, "timers": {"throughput": {"enabled": 0}}, "aio": {"block_size": 1}},
    {**MICRO, "tensorboard": {"enabled": False, "job_name": "x"}, "comms_logger": {"prof_ops": []}, "pipeline": {}},
    {**MICRO, "checkpoint": {"tag_validation": "FAIL", "writer": {"type": "fast"}}, "torch_autocast": {"enabled": 0}},
    {**MICRO, "tensor_parallel": {"autotp_size": 1, "tp": {"tp_size": 1}}, "hybrid_engine": {"max_out_tokens": 512}},
    {**MICRO, "data_efficiency": {"seed": 1, "data_sampling": {"dynamic_batching": {"min_batch_size": 1}}}},
    {**MICRO, "expert_parallel": {"autoep_size": 1}, "autotuning": {"mp_size": 1, "model_info": {"num_layers": 2}}},
)  # fmt: skip
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
WORLD_SIZES = (1, 2, 8, 64)


class Mutant(NamedTuple):
    """A damaged config."""

    text: str
    world_size: int
    changed: tuple[Keys, ...] = ()
    """Where it differs from the config that it was: keys that were set, added or deleted."""
    base: int = 0
    """Which of the bases it was."""


Duplicates = dict[int, tuple[str, Any]]
"""By the identity of an object: the key that it holds once more, and the value there."""


def mutants(
    count: int,
    seed: int,
    bases: Sequence[tuple[Config, Sequence[int]]] | None = None,
    damages: Sequence[Damage] | None = None,
) -> Iterator[Mutant]:
    """`count` configs with one to three damages each; `bases` are configs with the world sizes to choose from."""
    random = Random(seed)
    bases = bases if bases is not None else [(base, WORLD_SIZES) for base in BASES]
    for number in range(count):
        place = number % len(bases)
        base, world_sizes = bases[place]
        config = json.loads(json.dumps(base))  # where a copy would keep two sections one object
        duplicates: Duplicates = {}
        for _ in range(random.choice((1, 1, 2, 3))):
            damage = random.choice(damages or DAMAGES)
            damage(config, random)
        changed = tuple(differences(base, config))
        if random.random() < 0.05:
            section = random.choice([config, *_sections(config)])
            if section:
                key = random.choice(list(section))
                duplicates[id(section)] = (key, random.choice((section[key], 1, {})))
        yield Mutant(_render(config, duplicates), random.choice(world_sizes), changed, place)


def differences(before: Config, after: Config, above: Keys = ()) -> Iterator[Keys]:
    """The outermost keys that were set to another value, added or deleted."""
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key), after.get(key)
        if key in before and key in after and isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, (*above, key))
        elif (key in before) != (key in after) or repr(old) != repr(new):
            yield (*above, key)


def _render(value: Any, duplicates: Duplicates) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    pairs = list(value.items()) + ([duplicates[id(value)]] if id(value) in duplicates else [])
    return "{" + ", ".join(f"{json.dumps(key)}: {_render(below, duplicates)}" for key, below in pairs) + "}"


def _sections(config: Config) -> list[Config]:
    found = []
    for value in config.values():
        if isinstance(value, dict):
            found += [value, *_sections(value)]
    return found


def _batch(config: Config, random: Random) -> None:
    name = random.choice(BATCH)
    odd: tuple[Any, ...] = (None, 0, -4, 1.5, 8.0, 0.5, "8", "0", "-2", "x", True, False, [], "absent")
    value = random.choice(
        odd if random.random() < 0.4 else (1, 2, 3, 4, 6, 8, 16, 24, 48, 64, 96, 128, 192, 256, 384)
    )
    config[name] = value
    if value == "absent":
        del config[name]


def _parallel(config: Config, random: Random) -> None:
    config[random.choice(("sequence_parallel_size", "data_parallel_size"))] = random.choice(
        (1, 2, 3, 4, 8, 24)
    )


def _precision(config: Config, random: Random) -> None:
    name = random.choice(("fp16", "bf16", "bfloat16"))
    section = config.setdefault(name, {})
    if random.random() < 0.1:
        # What stands in place of bf16 would hide bfloat16.
        config[name] = random.choice((None, {}) if name == "bf16" else (None, {}, True, "auto"))
    elif isinstance(section, dict):
        values = (True, True, True, False, "true", "True", "yes", "off", "maybe", 1, 0, 2, None, "auto")
        section["enabled"] = random.choice(values)


def _some_section(config: Config, random: Random) -> Config:
    if random.random() < 0.3:
        name = random.choice(("zero_optimization", "fp16", "bf16", "optimizer", "scheduler", "data_types"))
        config.setdefault(name, {})
    return random.choice(_sections(config) or [config])


def _misspell(config: Config, random: Random) -> None:
    section = _some_section(config, random)
    names = [name for name in section if len(name) > 3]
    if names:
        name = random.choice(names)
        at = random.randrange(1, len(name) - 1)
        wrong = random.choice((name[:at] + name[at + 1 :], name.upper(), name.replace("_", "-"), name + "s"))
        section[wrong] = "auto" if random.random() < 0.2 else section[name]
        if random.random() < 0.5 and wrong != name:
            del section[name]


def _add(config: Config, random: Random) -> None:
    names = (
        "comment",
        "_note",
        "strict",
        "strict",
        "device",
        "enabled",
        "stage",
        "loss_scale",
        "opt_level",
        "x",
    )
    values: tuple[Any, ...] = (True, False, "auto", "auto", None, 1, "text", [], {"a": 1})
    _some_section(config, random)[random.choice(names)] = random.choice(values)


def _quote(config: Config, random: Random) -> None:
    places = [
        (section, name)
        for section in [config, *_sections(config)]
        for name, value in section.items()
        # What stands here quoted stops deepspeed.initialize before it reads the config.
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and not name.endswith("parallel_size")
    ]
    if places:
        section, name = random.choice(places)
        number = section[name]
        ways = (str(number), f" {number} ", f"{number:.1e}", f"-{number}", f"{number}.0", f"{number}x", "inf")
        section[name] = random.choice(ways)


def _zero_section(config: Config, random: Random) -> None:
    section = config.setdefault("zero_optimization", {})
    if not isinstance(section, dict):
        return
    if random.random() < 0.5:
        section["stage"] = random.choice(
            (0, 1, 2, 3, 4, -1, "0", "2", "5", 3.0, 2.5, True, None, "auto", "two")
        )
        return
    name = random.choice(("offload_param", "offload_optimizer"))
    devices = ("cpu", "nvme", "none", "CPU", "gpu", "auto", None)
    section[name] = random.choice(
        (
            None,
            "auto",
            True,
            {},
            *({"device": device} for device in devices),
            {"device": "cpu", "buffer_count": "4"},
        )
    )


def _loss_scale(config: Config, random: Random) -> None:
    section = config.setdefault("fp16", {"enabled": True})
    if isinstance(section, dict):
        name = random.choice(
            ("loss_scale", "loss_scale_window", "min_loss_scale", "initial_scale_power", "hysteresis")
        )
        section[name] = random.choice(
            (0, 1, 128, 2.5, -1, "0", "128", "x", "1e3", "2.5", "-1", None, True, "auto")
        )


def _other(config: Config, random: Random) -> None:
    name, value = random.choice(
        (
            ("amp", {"enabled": False}),
            ("sparse_gradients", False),
            ("zero_optimization", True),
            ("zero_optimization", None),
            ("communication_data_type", "float16"),
            ("gradient_allreduce_op", "sum"),
            ("optimizer", {"type": "AdamW", "params": {"max_grad_norm": "1.0"}}),
            ("vocabulary_size", "50257"),
            ("gradient_clippping", 1.0),
            ("tensor_parallel", {"autotp_size": "2", "unheard_of": 1}),
        )
    )  # fmt: skip
    config[name] = copy.deepcopy(value)


def _declared(random: Random) -> tuple[tuple[str, ...], Config]:
    """Any declared key that is no section."""
    keys: list[tuple[tuple[str, ...], Config]] = []
    stack: list[tuple[tuple[str, ...], Config]] = [((), load_keys())]
    while stack:
        above, section = stack.pop()
        for name, spec in section["keys"].items():
            if "keys" in spec:
                stack.append(((*above, name), spec))
            # Two sizes that stop deepspeed.initialize before it reads the config, and what the machine decides.
            elif not spec.get("open") and not name.endswith("parallel_size") and name != "use_gds":
                keys.append(((*above, name), section["keys"][spec["alias"]] if "alias" in spec else spec))
    return random.choice(keys)


def _set(config: Config, keys: tuple[str, ...], value: object) -> None:
    if keys == ("vocabulary_size",):
        value = value or 0  # an empty text or list counts as no size
    if len(keys) == 1 and keys[0] in BATCH and isinstance(value, int | float):
        value = min(value, 10**9)  # what 64 bits don't hold is not reckoned with
    place: Any = config
    for key in keys[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place[keys[-1]] = value


def _wrong_value(config: Config, random: Random) -> None:
    keys, spec = _declared(random)
    odd: tuple[Any, ...] = (
        None, True, False, "auto", "true", "false", "no", "maybe", "", [], ["a"], [1], {}, {"a": 1}, 0, 1, -1, -0.5,
        0.5, 2.5, 1e9, 1e30, 15099494.4, 2**70, "x",
    )  # fmt: skip
    bounds = [spec[name] for name in ("min", "exclusive_min", "max", "exclusive_max") if name in spec]
    near = [bound + step for bound in bounds for step in (-1, -0.001, 0, 0.001, 1)]
    if spec.get("filled_by"):
        odd = tuple(value for value in odd if value != "auto")  # a placeholder, which is not for DeepSpeed
    if spec["type"] == "bool":
        odd = tuple(value for value in odd if value != 1e9)  # HJSON makes an integer of it
    words = [word for value in spec.get("values", ()) for word in (value, f"{value}s", str(value).upper())]
    _set(config, keys, random.choice([*odd, *near, *near, *words, *words]))


def _removed(config: Config, random: Random) -> None:
    table = load_keys()
    section = random.choice(((), ("zero_optimization",), ("optimizer", "params")))
    node = table
    for name in section:
        node = node["keys"][name]
    names = [name for name, spec in node["keys"].items() if spec.get("status") == "removed"]
    _set(
        config,
        (*section, random.choice(names)),
        random.choice((False, True, None, {}, "auto", 1.0, "1.0", [])),
    )


def _two_spellings(config: Config, random: Random) -> None:
    keys = load_keys()["keys"]["zero_optimization"]["keys"]
    pairs = [(name, spec["alias"]) for name, spec in keys.items() if "alias" in spec]
    pairs += [("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param")] * 3
    pairs += [("stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save")] * 2
    for name in random.choice(pairs):
        spec = keys[keys[name].get("alias", name)]
        good: object = {"device": "cpu"} if "keys" in spec else spec.get("default", True)
        value = random.choice((good, good, good, "auto", None, True, False, 1))
        if random.random() < 0.9:
            _set(config, ("zero_optimization", name), value)
    if random.random() < 0.1:
        _set(config, ("zero_optimization", "strict"), random.choice((True, False, "auto")))


def _misplace(config: Config, random: Random) -> None:
    keys, spec = _declared(random)
    section = random.choice(
        ((), ("zero_optimization",), ("fp16",), ("bf16",), ("optimizer",), ("data_types",))
    )
    values: tuple[Any, ...] = (spec.get("default"), 1, True, {}, "auto" if section else 2)
    _set(config, (*section, keys[-1]), random.choice(values))


_CONTRADICTING: tuple[tuple[Keys, tuple[Any, ...]], ...] = (
    (("zero_optimization", "stage"), (0, 1, 2, 3)),
    (("zero_optimization", "compute_grad_norm"), (True, False)),
    (("zero_optimization", "offload_optimizer", "ratio"), (0, 0.5, 1)),
    (("zero_optimization", "offload_optimizer", "device"), ("none", "cpu")),
    (("zero_optimization", "offload_param", "device"), ("none", "cpu")),
    (("zero_optimization", "zenflow"), ({}, {"topk_ratio": 0.1}, {"topk_ratio": 1.5})),
    (("gradient_allreduce_op",), ("sum", "mean")),
    (("compile", "deepcompile"), (True, False)),
    (("fp16", "enabled"), (True, False)),
    (("fp16", "loss_scale"), (0, 128)),
    (("fp16", "min_loss_scale"), (0, 1, -1)),
    (("fp16", "loss_scale_window"), (0, 1000, -1)),
    (("fp16", "fp16_master_weights_and_grads"), (True, False)),
    (("bf16", "enabled"), (True, False)),
    (("bf16", "bf16_master_weights_and_grads"), (True, False)),
    (("bf16", "bf16_optimizer_states"), (True, False)),
    (("data_efficiency", "data_sampling", "curriculum_learning", "enabled"), (True, False)),
    (("data_efficiency", "data_sampling", "curriculum_learning", "curriculum_metrics"), ({}, {"x": {}})),
    (("data_efficiency", "data_sampling", "dynamic_batching", "enabled"), (True, False)),
    (("data_efficiency", "data_sampling", "dynamic_batching", "max_tokens"), (512,)),
    (("data_types", "grad_accum_dtype"), ("fp32", "bf16", "fp16")),
    (("checkpoint", "load_universal"), (True, False)),
    (("sequence_parallel_size",), (1, 2)),
    (("torch_autocast", "enabled"), (True, False)),
    (("zero_optimization", "zero_quantized_weights"), (True, False)),
    (("gradient_predivide_factor",), (1.0, 2.0)),
    (("prescale_gradients",), (True, False)),
    (("zero_optimization", "reduce_scatter"), (True, False)),
    (("zero_optimization", "allgather_bucket_size"), (500000000, 333)),
    (("zero_optimization", "legacy_stage1"), (True, False)),
    (("managed_gradient_accumulation",), (True, False)),
    (("zero_optimization", "overlap_comm"), (True, False)),
    (
        ("optimizer",),
        ({"type": "SGD", "params": {"lr": 0.1}}, {"type": "Lion"}, {"type": "Muon", "params": {}}),
    ),
    (("zero_allow_untested_optimizer",), (True, False)),
    (("optimizer", "params", "amsgrad"), (True, False)),
    (("optimizer", "params", "momentum"), (0.9,)),
    (
        ("scheduler",),
        ({"type": "WarmupLR"}, {"type": "cosine", "params": {}}, {"type": "StepLR", "params": {}}),
    ),
    (("scheduler", "params"), ({"total_num_steps": 10}, {"warmup_num_steps": 0}, {"warmup_num_steps": 5.0})),
    (("scheduler", "type"), ("WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest")),
)
"""Keys that are sound alone and contradict others."""


def contradict(config: Config, random: Random) -> None:
    """Set a key that is sound alone to a value that others may not bear."""
    keys, values = random.choice(_CONTRADICTING)
    _set(config, keys, copy.deepcopy(random.choice(values)))


DAMAGES: tuple[Damage, ...] = (
    _batch, _batch, _batch, _parallel, _precision, _precision, _misspell, _misspell, _add, _quote, _quote,
    _zero_section, _loss_scale, _other, _wrong_value, _wrong_value, _wrong_value, _removed, _two_spellings,
    _two_spellings, _misplace, contradict, contradict,
)  # fmt: skip
