"""The number of processes: what lint says of a value, and whether the real launcher takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import lint_json

from dsconf.config.effective import Facts
from dsconf.formats.accelerate.facts import FACTS

from .accelerate_answers import config_of
from .accelerating import launched, one_machine

pytestmark = pytest.mark.oracle

VALUES: list[object] = [
    0, 1, 8, 15, 16, -1, -2, 2.5, 8.0, True, False, None, "auto", "cpu", "AUTO", "8", " 8", "16", "0", "-3", "2.5",
    "two", [8], {},
]  # fmt: skip
ABSENT = object()
VALUES.append(ABSENT)
SEVERAL = {"num_machines": 2, "main_process_ip": "10.0.0.1", "main_process_port": 29500}
STOPS = ("absent", "wrong", "text", "few")


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


@pytest.mark.parametrize("machines", [{}, SEVERAL], ids=["one machine", "two machines"])
@pytest.mark.parametrize("distributed", ["MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU", "NO"])
def test_the_launcher_stops_where_lint_says_so(
    distributed: str, machines: dict[str, object], tmp_path: Path
) -> None:
    wrong = {}
    for value in VALUES:
        settings = {"distributed_type": distributed, "num_processes": value, **machines}
        if value is ABSENT:
            del settings["num_processes"]
        real = launched(settings, tmp_path, worker=False)
        problem = Facts(config_of(settings), FACTS).value("processes_problem")
        if (problem in STOPS) != (real.fails == "launch"):
            wrong[str(value)] = problem, real.fails, real.error
        if problem == "none" and machines and real.local is not None:
            assert real.local * 2 == value
    assert wrong == {}


@pytest.mark.parametrize(("value", "per_machine"), [(15, 7), (16, 8)])
def test_a_remainder_is_dropped(value: int, per_machine: int, tmp_path: Path) -> None:
    settings = {"distributed_type": "FSDP", "num_processes": value, **SEVERAL}
    assert launched(settings, tmp_path, worker=False).local == per_machine
    problem = Facts(config_of(settings), FACTS).value("processes_problem")
    assert problem == ("indivisible" if value % 2 else "none")


@pytest.mark.parametrize("distributed", ["MULTI_GPU", "FSDP", "DEEPSPEED"])
@pytest.mark.parametrize("address", [None, "10.0.0.1"])
def test_the_address_of_the_first_machine(distributed: str, address: str | None, tmp_path: Path) -> None:
    """accelerate-no-main-ip"""
    settings: dict[str, object] = {"distributed_type": distributed, "num_processes": 16, "num_machines": 2}
    if distributed == "DEEPSPEED":
        settings["deepspeed_config"] = {"deepspeed_multinode_launcher": "standard"}
    if address is not None:
        settings |= {"main_process_ip": address}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    said = {finding["rule"] for finding in lint_json(path)[1]["findings"]}
    real = launched(settings, tmp_path, worker=False)
    assert (real.fails, real.address) == (None, str(address))
    assert ("accelerate-no-main-ip" in said) == (real.address == "None")
