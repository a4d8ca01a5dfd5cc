"""What the parity tests share: a launch costs more than many cells, so that those of several files run together."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest

from .bench import Bench
from .compare import Verdict
from .run import run_cases


@pytest.fixture(scope="session")
def benches(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Bench]:
    """A bench for each file with `cases`, of which a test is to run."""
    return {name: Bench(tmp_path_factory.mktemp(name.rpartition(".")[2])) for name in _files(request)}


@pytest.fixture(scope="session")
def every_verdict(benches: dict[str, Bench], request: pytest.FixtureRequest) -> dict[str, dict[str, Verdict]]:
    """By file the verdicts of its cases, all of them run in one launch a side."""
    cases = {name: module.cases(benches[name]) for name, module in _files(request).items()}
    renamed = {
        name: {case.id: replace(case, id=f"{name} {case.id}") for case in made}
        for name, made in cases.items()
    }
    verdicts = run_cases([case for made in renamed.values() for case in made.values()])
    return {name: {old: verdicts[case.id] for old, case in made.items()} for name, made in renamed.items()}


@pytest.fixture(scope="module")
def bench(benches: dict[str, Bench], request: pytest.FixtureRequest) -> Bench:
    """What made the cases of this file."""
    return benches[request.module.__name__]


@pytest.fixture(scope="module")
def verdicts(
    every_verdict: dict[str, dict[str, Verdict]], request: pytest.FixtureRequest
) -> dict[str, Verdict]:
    """The verdicts of the cases of this file."""
    return every_verdict[request.module.__name__]


def _files(request: pytest.FixtureRequest) -> dict[str, ModuleType]:
    modules = (item.module for item in request.session.items if isinstance(item, pytest.Function))
    return {module.__name__: module for module in modules if hasattr(module, "cases")}
