"""The scheduler section: what deepspeed.initialize builds from it, against the rules on it."""

from __future__ import annotations

import itertools
import json
from typing import Any
from unittest import mock

import pytest

from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS, SCHEDULER_ARGUMENTS, TORCH_SCHEDULERS
from dsconf.formats.deepspeed.optimizers import TORCH_OPTIMIZERS

from .engine import NO_KERNEL, errors, finding, findings, initialize, refused
from .judge import Config, deepspeed, hjson, torch

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group")]

schedules = deepspeed.runtime.lr_schedules
NEEDED: dict[str, Config] = {
    "WarmupDecayLR": {"total_num_steps": 2000},
    "WarmupCosineLR": {"total_num_steps": 2000},
    "OneCycle": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2},
    "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 10},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 0.2, "cycle_momentum": False},
    "ExponentialLR": {"gamma": 0.9},
    "MultiStepLR": {"milestones": [3]},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 10},
    "StepLR": {"step_size": 3},
}
CODED = ["LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"]
BUILDABLE = [name for name in (*SCHEDULER_ARGUMENTS, *TORCH_SCHEDULERS) if name not in CODED]


def config_with(name: str, params: object, lr: float | None = None, **sections: Config) -> Config:
    """A config whose optimizer is one of torch's, and wrapped only if `sections` say so."""
    optimizer = {"type": "AdamW", "params": {"torch_adam": True, **({} if lr is None else {"lr": lr})}}
    scheduler = {"type": name, **({} if params is None else {"params": params})}
    return {"optimizer": optimizer, "scheduler": scheduler, **sections}


def build(name: str, params: Config, lr: float = 0.1) -> Any:
    """The schedule as the engine builds it, for an optimizer that is not wrapped, or the exception."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=lr)
    module = schedules if hasattr(schedules, name) else torch.optim.lr_scheduler
    try:
        return getattr(module, name)(optimizer, **params)
    except Exception as error:
        return error


# ---- scheduler-unknown-type, scheduler-needs-code, torch-scheduler-on-zero, scheduler-without-params ----


def is_schedule(engine: Any) -> bool:
    return hasattr(engine.lr_scheduler, "step") and not hasattr(engine.lr_scheduler, "zero_grad")


def test_names() -> None:
    others = [
        "cosine",
        "linear",
        "warmuplr",
        "warmup_lr",
        "WarmUpLR",
        "WarmupLinearLR",
        "Cosine",
        "stepLR",
        "",
    ]
    named = {*dir(schedules), *dir(torch.optim.lr_scheduler)}
    # What stands between two underscores counts as a placeholder of a template.
    for name in sorted({name for name in named if not name.startswith("__")} | {*others}):
        config = config_with(name, NEEDED.get(name, {}))
        engine = initialize(config)
        said = finding("scheduler-unknown-type", config)
        built = not isinstance(engine, Exception) and is_schedule(engine)
        assert bool(errors(config)) == (not built), (name, engine)
        assert said is None or (said.fails == "init" and name not in BUILDABLE)
        if "does not recognize LR scheduler" in str(engine):
            assert said is not None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cosine", "WarmupCosineLR"),
        ("cosine_with_restarts", "WarmupCosineLR"),
        ("linear", "WarmupDecayLR"),
        ("constant_with_warmup", "WarmupLR"),
        ("warmuplr", "WarmupLR"),
        ("WarmUpDecayLR", "WarmupDecayLR"),
        ("onecycle", "OneCycle"),
        ("onecyclelr", "OneCycleLR"),
        ("steplr", "StepLR"),
    ],
)
def test_a_name_is_suggested(name: str, meant: str) -> None:
    said = finding("scheduler-unknown-type", config_with(name, {}))
    assert said is not None
    assert f'"{meant}"' in (said.help or "")


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("value", [1, "lambda step: 1", [1], [], None])
def test_what_a_file_cannot_hold(name: str, value: object) -> None:
    needed = TORCH_SCHEDULERS[name][0].split()
    for bf16 in (True, False):
        config = config_with(name, dict.fromkeys(needed, value), bf16={"enabled": bf16})
        assert refused(initialize(config))
        assert finding("scheduler-needs-code", config) is not None


MODES: list[Config] = [
    {},
    {"bf16": {"enabled": True}},
    {"zero_optimization": {"stage": 0}},
    {"zero_optimization": {"stage": 1}},
    {"zero_optimization": {"stage": 3}},
    {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    {"bf16": {"enabled": False}, "fp16": {"enabled": False}},
    {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
]


@pytest.mark.parametrize("name", BUILDABLE)
def test_schedules_of_torch_want_an_optimizer_of_torch(name: str) -> None:
    for mode in MODES:
        config = config_with(name, NEEDED.get(name, {}), **mode)
        engine = initialize(config)
        said = finding("torch-scheduler-on-zero", config)
        assert (said is not None) == ("is not an Optimizer" in str(engine))
        assert bool(errors(config)) == refused(engine)
        assert said is None or said.fails == "init"


@pytest.mark.parametrize("name", BUILDABLE)
@pytest.mark.parametrize("params", [None, {}], ids=str)
def test_without_params(name: str, params: Config | None) -> None:
    config = config_with(name, params)
    engine = initialize(config)
    said = finding("scheduler-without-params", config)
    assert (said is not None) == ("must be a mapping" in str(engine))
    assert bool(errors(config)) == refused(engine)


def test_no_schedule_without_an_optimizer() -> None:
    """An optimizer of the script counts: DeepSpeed builds the schedule for it."""
    section = {"scheduler": {"type": "WarmupLR", "params": {}}}
    assert initialize(section).lr_scheduler is None
    assert isinstance(initialize(section, optimizer=torch.optim.AdamW).lr_scheduler, schedules.WarmupLR)
    assert findings(section) == []


# ---- scheduler-unknown-param, scheduler-missing-param ------------------------------------------------

KEYS = sorted(
    {
        name
        for pair in (*SCHEDULER_ARGUMENTS.values(), *TORCH_SCHEDULERS.values())
        for name in " ".join(pair).split()
    }
)


@pytest.mark.parametrize("name", BUILDABLE)
def test_arguments(name: str) -> None:
    for key in [*KEYS, "warmup_steps", "optimizer", "_comment"]:
        params = {**NEEDED.get(name, {}), key: NEEDED.get(name, {}).get(key, 1)}
        schedule = build(name, params)
        said = [
            each for each in findings(config_with(name, params)) if each.rule == "scheduler-unknown-param"
        ]
        text = str(schedule) if isinstance(schedule, TypeError) else ""
        unknown = "unexpected keyword" in text or "multiple values" in text
        assert len(said) == unknown, (key, schedule)
        assert all(each.fails == "init" and key in each.message for each in said)


@pytest.mark.parametrize("name", BUILDABLE)
def test_missing_arguments(name: str) -> None:
    needed = NEEDED.get(name, {})
    for size in range(len(needed) + 1):
        for keys in itertools.combinations(needed, size):
            params = {key: needed[key] for key in keys}
            schedule = build(name, params)
            said = finding("scheduler-missing-param", config_with(name, params))
            missing = "required positional argument" in str(schedule)
            assert (said is not None) == missing, (params, schedule)
            for key in SCHEDULER_ARGUMENTS.get(name, ("", ""))[0].split():
                assert said is None or (key in said.message) == (key not in params)


def test_where_an_argument_belongs() -> None:
    config = config_with("WarmupLR", {"total_num_steps": 10, "warmup_step": 5})
    helps = [each.help for each in findings(config) if each.rule == "scheduler-unknown-param"]
    assert helps == [
        "remove it: it belongs to WarmupDecayLR and WarmupCosineLR",
        'did you mean "warmup_num_steps"?',
    ]


# ---- values ------------------------------------------------------------------------------------------

STEPS = {
    "WarmupLR": ["warmup_num_steps"],
    "WarmupDecayLR": ["warmup_num_steps"],
    "WarmupCosineLR": ["warmup_num_steps"],
    "OneCycle": ["cycle_first_step_size", "cycle_second_step_size"],
    "LRRangeTest": ["lr_range_test_step_size"],
}


@pytest.mark.parametrize("name", STEPS)
def test_sizes(name: str) -> None:
    """Bounds are those of the key table; a key of another schedule is not judged by them."""
    for key, value in itertools.product(
        sorted({key for keys in STEPS.values() for key in keys}),
        [-1, 0, 1, 2, 100, 0.0, 100.0, 1.5, -0.5, True],
    ):
        config = config_with(name, {**NEEDED.get(name, {}), key: value})
        said = errors(config)
        params = hjson.loads(json.dumps(config["scheduler"]["params"]))  # 100.0 is an integer to it
        assert bool(said) == isinstance(build(name, params), Exception), (key, value)
        if key not in STEPS[name]:
            assert [each.rule for each in said] == ["scheduler-unknown-param"]


LISTS = [
    ("WarmupLR", "warmup_min_lr", "warmup_max_lr"),
    ("WarmupDecayLR", "warmup_min_lr", "warmup_max_lr"),
    ("OneCycle", "cycle_min_lr", "cycle_max_lr"),
    ("OneCycle", "cycle_min_mom", "cycle_max_mom"),
    ("LRRangeTest", "lr_range_test_min_lr", "lr_range_test_min_lr"),
]


@pytest.mark.parametrize(("name", "low", "high"), LISTS)
def test_lists_of_different_lengths(name: str, low: str, high: str) -> None:
    """An error where no number of groups would do."""
    values: list[Any] = [0.5, [], [0.5], [0.5, 0.5]]
    for first, second in itertools.product(values, values):
        params = {**NEEDED.get(name, {}), low: first, high: second}
        accepted = []
        for groups in (1, 2):
            optimizer = torch.optim.AdamW(
                [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(groups)]
            )
            try:
                accepted.append(getattr(schedules, name)(optimizer, **params))
            except ValueError:
                continue
        said = finding("scheduler-list-lengths", config_with(name, params))
        assert (said is None) == bool(accepted), params


@pytest.mark.parametrize("name", ["WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle"])
@pytest.mark.parametrize("word", ["log", "linear", "Linear", "LOG", "cosine", "", 1, None])
def test_shapes_of_the_warmup(name: str, word: object) -> None:
    config = config_with(name, {**NEEDED.get(name, {}), "warmup_type": word, "total_num_steps": 2000})
    if name == "WarmupLR":
        del config["scheduler"]["params"]["total_num_steps"]
    with mock.patch.object(schedules, "logger") as logger:
        schedule = build(name, config["scheduler"]["params"])
    complaint = any("unknown warmup_type" in str(call) for call in logger.warning.call_args_list)
    said = finding("scheduler-warmup-type", config)
    assert (said is not None) == complaint
    if said is not None:
        assert schedule.warmup_type == "log"
        assert said.severity == "warning"


@pytest.mark.parametrize("name", ["WarmupDecayLR", "WarmupCosineLR"])
@pytest.mark.parametrize("total", [1, 2, 199, 200, 201, 999, 1000])
@pytest.mark.parametrize("warmup", [None, 1, 2, 200, 500])
def test_a_warmup_longer_than_the_schedule(name: str, total: int, warmup: int | None) -> None:
    params = {"total_num_steps": total, **({} if warmup is None else {"warmup_num_steps": warmup})}
    with mock.patch.object(schedules, "logger") as logger:
        schedule = build(name, params)
    complaint = any("is less than warmup_num_steps" in str(call) for call in logger.warning.call_args_list)
    said = finding("scheduler-warmup-exceeds-total", config_with(name, params))
    if (total, warmup) == (1, 1):
        assert complaint, "DeepSpeed makes a warm-up of 1 one of 2"
        assert said is None
        return
    assert (said is not None) == complaint
    if said is not None and total > 2:
        assert str(total) in said.message
        assert str(warmup or 1000) in said.message
        schedule.step(schedule.warmup_num_steps)
        assert schedule.get_last_lr()[0] <= 0.1 * 0.0002, "the end of the decay"


@pytest.mark.parametrize("name", [*TORCH_OPTIMIZERS, "Muon", "Adagrad", "Lion"])
@pytest.mark.parametrize(
    "params", [{"cycle_momentum": True}, {"cycle_min_mom": 0.7}, {"cycle_momentum": False}, {}], ids=str
)
def test_momentum_of_a_cycle(name: str, params: Config) -> None:
    scheduler = {"type": "OneCycle", "params": {**NEEDED["OneCycle"], **params}}
    engine = initialize({"optimizer": {"type": name, "params": {}}, "scheduler": scheduler})
    said = finding("scheduler-momentum-without-betas", {"optimizer": {"type": name}, "scheduler": scheduler})
    wanted = params.get("cycle_momentum", bool(params))
    if NO_KERNEL in str(engine):
        assert "betas" in OPTIMIZER_ARGUMENTS["FusedLion"].split()
        assert said is None
        return
    assert (said is not None) == (wanted and not engine.lr_scheduler.cycle_momentum)


RATES: list[float | None] = [None, 0.0, 1e-3, 1e-2, 0.1]


@pytest.mark.parametrize("name", ["WarmupLR", "WarmupDecayLR"])
def test_which_learning_rate_counts(name: str) -> None:
    """After the warm-up; and a warm-up that falls."""
    for low, high, lr in itertools.product(RATES, RATES, (1e-3, 1e-2)):
        params = {"warmup_min_lr": low, "warmup_max_lr": high}
        params = {key: value for key, value in params.items() if value is not None}
        params |= {**NEEDED.get(name, {}), "warmup_num_steps": 10}
        config = config_with(name, params, lr)
        schedule = build(name, params, lr)
        schedule.step(0)
        (first,) = schedule.get_last_lr()
        schedule.step(10)
        (last,) = schedule.get_last_lr()
        said = finding("scheduler-replaces-lr", config)
        assert (said is not None) == (last != pytest.approx(lr)), (params, lr)
        assert (finding("scheduler-min-above-max", config) is not None) == (first > last)


@pytest.mark.parametrize("optimizer", [{}, {"type": None}])
def test_no_learning_rate_is_replaced_without_an_optimizer(optimizer: Config) -> None:
    scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.2}}
    section = {**optimizer, "params": {"lr": 0.1}}
    assert finding("scheduler-replaces-lr", {"optimizer": section, "scheduler": scheduler}) is None


@pytest.mark.parametrize("low", ["cycle_min_lr", "cycle_min_mom"])
def test_a_cycle_that_is_upside_down(low: str) -> None:
    high = low.replace("min", "max")
    for first, second, moving in itertools.product((0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (True, False)):
        params = {**NEEDED["OneCycle"], low: first, high: second, "cycle_momentum": moving}
        schedule = build("OneCycle", {**params, "cycle_first_step_size": 10})

        def value(schedule: Any = schedule) -> float:
            group = schedule.optimizer.param_groups[0]
            return float(group["lr"] if low == "cycle_min_lr" else -group["betas"][0])

        schedule.step(0)
        start = value()
        schedule.step(8)
        said = finding("scheduler-min-above-max", config_with("OneCycle", params))
        assert (said is not None) == (value() < start), params
