"""The other tools still answer as docs/peers.md says.

What `accelerate launch` starts is imitated as in the other tests of it; all else runs as the page shows it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import dsconf

from tools.peers.faults import FAULTS, FOLDER, Fault
from tools.peers.losses import FSDP1, LOSSES, MESH, STARTS, Loss, to_fsdp2, translate, translation
from tools.peers.page import PAGE, converted_block
from tools.peers.page import outcome as as_said
from tools.peers.rivals import CONVERTED, RIVALS, Verdict, shown, verdict
from tools.peers.rivals import run as run_alone

from . import accelerating
from .launch import Case, launch
from .scripts import Command, Outcome, run

pytestmark = pytest.mark.oracle

PAGE_TEXT = PAGE.read_text(encoding="utf-8")
LAUNCHED = "accelerate launch"
BECOMES = {
    "hybrid_shard.yaml": (2, True, None),
    "no_shard.yaml": (2, False, None),
    "lower_case.yaml": None,
    "integer.yaml": None,
    "without_prefix.yaml": (1, None, "SHARD_GRAD_OP"),
    "local_state_dict.yaml": None,
    "two_strategies.yaml": (2, True, None),
    "version_2_with_fsdp1_keys.yaml": (2, True, None),
    "comments.yaml": (2, False, None),
}
"""What workers make of what to-fsdp2 wrote: version, reshard_after_forward, strategy; None where they end."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path_factory.mktemp("peers") / "peers"))


@pytest.fixture(scope="module")
def ended(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """By file and title of the tool: how each command of the page ended that needs one of the libraries."""
    commands: dict[tuple[str, str], Command] = {}
    for fault in FAULTS:
        for rival in RIVALS:
            words = rival.command(fault.file)
            if words and rival.title not in (LAUNCHED, "json.tool"):
                commands[fault.file, rival.title] = Command(words, str(folder))
    for loss in LOSSES:
        place = shutil.copytree(folder, tmp_path_factory.mktemp("loss") / "peers")
        commands[loss.file, ""] = Command(to_fsdp2(loss.file), str(place))
    outcomes = dict(zip(commands, run(list(commands.values())), strict=True))
    for loss in LOSSES:
        written = Path(commands[loss.file, ""].folder) / CONVERTED
        outcomes[loss.file, CONVERTED] = Outcome(0, written.read_text(encoding="utf-8"))
    return outcomes


@pytest.fixture
def _worker_up_to_accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page goes as far as Accelerator(): what prepare() does comes later."""
    monkeypatch.setattr(accelerating, "_initialize", lambda _: None)
    with accelerating.one_machine():
        yield


def row(fault: Fault) -> dict[str, str]:
    """The words of the page for each tool."""
    (line,) = [line for line in PAGE_TEXT.splitlines() if line.startswith(f"| {fault.number} |")]
    words = [cell.strip() for cell in line.strip("|").split("|")][3:]
    return dict(zip((rival.title for rival in RIVALS), words, strict=True))


def on_the_page(fault: Fault, title: str, found: Verdict) -> None:
    assert found.word == row(fault)[title], f"{title}: {found.message}"
    if found.message:
        assert f"- {title}, {found.word}: `{found.message}`" in PAGE_TEXT


@pytest.mark.parametrize("title", [rival.title for rival in RIVALS if rival.title != LAUNCHED])
def test_a_tool_answers_as_the_page_says(
    title: str, ended: dict[tuple[str, str], Outcome], folder: Path
) -> None:
    (rival,) = [rival for rival in RIVALS if rival.title == title]
    for fault in FAULTS:
        if not (words := rival.command(fault.file)):
            found = Verdict("-", "")
        elif title == "json.tool":
            done = run_alone(words, folder)
            found = verdict(done.status, done.output, fault)
        else:
            found = verdict(*ended[fault.file, title], fault)
        on_the_page(fault, title, found)


@pytest.mark.usefixtures("_worker_up_to_accelerator")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
def test_accelerate_launch_answers_as_the_page_says(
    fault: Fault, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    config: Any = (FOLDER / fault.file).read_text(encoding="utf-8")
    if fault.file.endswith(".json"):
        section = {"deepspeed_config_file": str(FOLDER / fault.file)}
        config = {"distributed_type": "DEEPSPEED", "num_processes": 1, "deepspeed_config": section}
    with caplog.at_level(logging.WARNING):
        outcome = accelerating.launched(config, tmp_path)
    said = [*caplog.messages, *(str(each.message) for each in recwarn)]
    if outcome.error is not None:
        said = [f"{type(outcome.error).__name__}: {outcome.error}"]
    on_the_page(fault, LAUNCHED, verdict(int(outcome.error is not None), "\n".join(said), fault))


def started(config: str, folder: Path) -> tuple[str, accelerating.Outcome]:
    outcome = accelerating.launched(config, folder)
    if outcome.error is None:
        return FSDP1 if outcome.fsdp and outcome.fsdp.fsdp_version == 1 else STARTS, outcome
    return as_said(shown(f"{type(outcome.error).__name__}: {outcome.error}")), outcome


@pytest.mark.usefixtures("_worker_up_to_accelerator")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.file)
def test_to_fsdp2_loses_what_the_page_says(
    loss: Loss, tmp_path: Path, ended: dict[tuple[str, str], Outcome]
) -> None:
    converted = ended[loss.file, CONVERTED].output
    part = converted_block(loss, ended[loss.file, ""].output.strip(), converted)
    starts, outcome = started(converted, tmp_path)
    assert f"{part}\n\n`accelerate launch` of that: {starts}." in PAGE_TEXT
    plugin = outcome.fsdp
    strategy = plugin and plugin.sharding_strategy and plugin.sharding_strategy.name
    became = plugin and (plugin.fsdp_version, plugin.reshard_after_forward, strategy)
    assert became == BECOMES[loss.file]


@pytest.mark.usefixtures("_worker_up_to_accelerator")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.file)
def test_what_dsconf_makes_of_a_file_starts(
    loss: Loss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(shutil.copytree(FOLDER, tmp_path / "peers"))
    monkeypatch.chdir(place)
    result = dsconf(*translate(loss.file)[1:])
    if result.exit_code:
        return
    text = (place / "to_fsdp2" / loss.file).read_text(encoding="utf-8")
    part = translation(loss.file, 0, text, result.output)
    starts, _ = started(text, tmp_path)
    assert starts == STARTS
    on_page = MESH if "parallelism_config" in text else STARTS  # the page has one process
    assert f"{part}\n\n`accelerate launch` of that: {on_page}." in PAGE_TEXT


def test_the_engine_refuses_two_of_the_faults_that_the_config_passes() -> None:
    import hjson

    files = ("05_nvme_without_path.json", "06_unknown_optimizer.json")
    cases = [Case(hjson.loads((FOLDER / file).read_text(encoding="utf-8"))) for file in files]
    assert [outcome.failed for outcome in launch(cases)] == ["init", "init"]


@pytest.mark.usefixtures("_worker_up_to_accelerator")
def test_accelerate_refuses_a_class_with_a_space_when_it_prepares_the_model(tmp_path: Path) -> None:
    from accelerate.utils.fsdp_utils import (  # type: ignore[import-untyped]
        fsdp2_prepare_auto_wrap_policy,
    )
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "vocab_size": 8}
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, **sizes))  # type: ignore[arg-type]
    text = (FOLDER / "12_space_between_classes.yaml").read_text(encoding="utf-8")
    mended = accelerating.launched(text.replace(", LlamaMLP", ",LlamaMLP"), tmp_path).fsdp
    assert fsdp2_prepare_auto_wrap_policy(mended, model) is not None
    wrong = accelerating.launched(text, tmp_path).fsdp
    with pytest.raises(ValueError, match="Could not find the transformer layer class  LlamaMLP"):
        fsdp2_prepare_auto_wrap_policy(wrong, model)
