"""`accelerate launch` trains with what is written for it, and as close to the source as the report says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsconf.config.context import Context
from dsconf.translate.run import Translation, translate

from .bench import NEEDS_DEEPSPEED

pytestmark = NEEDS_DEEPSPEED

SCRIPT = Path(__file__).with_name("accelerate_script.py")
LOOP: dict[str, Any] = {
    "steps": 8,
    "accumulation": 2,
    "each": True,
    "clip": 0.1,
    "dummy": False,
    "loaded": "float32",
}
CLOSE = {"fp32": 2e-6, "bf16": 5e-3}
"""The loss, by precision: what the report of a translation says of "close"."""
OPTIMIZER = {
    "type": "AdamW",
    # DeepSpeed's own kernel takes minutes to compile.
    "params": {"lr": 1e-2, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "torch_adam": True},
}


def deepspeed(stage: int, precision: str, **more: Any) -> dict[str, Any]:
    on = {} if precision == "fp32" else {precision: {"enabled": True}}
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.1,
        "zero_optimization": {"stage": stage},
        **on,
        **more,
    }


def fsdp(section: str, precision: str = "bf16", processes: int = 2, more: str = "") -> str:
    return (
        f"distributed_type: FSDP\nmixed_precision: '{precision.replace('fp32', 'no')}'\n"
        f"num_processes: {processes}\n{more}fsdp_config:\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_transformer_layer_cls_to_wrap: Block\n"
        "  fsdp_cpu_ram_efficient_loading: false\n"
        f"  fsdp_sync_module_states: false\n{section}"
    )


class Run(NamedTuple):
    losses: list[float]
    kind: str
    model: str


class Ground:
    """A folder in which files are written, translated and launched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def place(self, name: str, content: dict[str, Any] | str) -> Path:
        self.count += 1
        path = self.folder / f"{self.count}" / name
        path.parent.mkdir()
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def translated(self, source: Path, target: str, world: int = 2) -> tuple[Path, Translation]:
        context = Context(world_size=world)
        done = translate(str(source), target, context, {}, ["Block"] if target.endswith("fsdp2") else [])
        assert done.report.supported
        path = self.place("accelerate.yaml", done.text)
        for name, text in done.beside.items():
            (path.parent / name).write_text(text, encoding="utf-8")
        return path, done

    def launched(self, path: Path, **job: Any) -> Run:
        """Train with a file; what a script does is that of LOOP but for `job`."""
        told = path.with_name("told.json")
        environment = os.environ | {
            "JOB": json.dumps({**LOOP, **job, "told": str(told)}),
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        }
        module = "accelerate.commands.accelerate_cli"
        self._run(["-m", module, "launch", "--config_file", str(path), str(SCRIPT)], told, environment)
        return self._told(told)

    def trained(self, source: Path) -> Run:
        """Train with the module that the file is translated to; the script and the loop are its own."""
        done = translate(str(source), "fsdp2", Context(), {}, ())
        assert done.report.supported, [each for each in done.report.items if each.outcome == "unsupported"]
        path = self.place("emitted.py", done.text)
        told = path.with_name("told.json")
        job = {**LOOP, "module": str(path), "told": str(told)}
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = os.environ | {"JOB": json.dumps(job), "OMP_NUM_THREADS": "1"}
        self._run([*launch, str(SCRIPT.with_name("module_script.py"))], told, environment)
        return self._told(told)

    def _run(self, arguments: list[str], told: Path, environment: dict[str, str]) -> None:
        ended = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=told.parent,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert told.exists(), ended.stderr[-3000:]

    def _told(self, told: Path) -> Run:
        found = json.loads(told.read_text(encoding="utf-8"))
        return Run(found["losses"], found["kind"], found["class"])


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("launch"))


def apart(one: Run, other: Run) -> float:
    assert len(one.losses) == len(other.losses) == LOOP["steps"] * LOOP["accumulation"]
    return max(abs(left - right) for left, right in zip(one.losses, other.losses, strict=True))


@cache
def reference(ground: Ground, stage: int, precision: str) -> Run:
    """DeepSpeed itself, with a config that Accelerate is only given."""
    config = ground.place("ds_config.json", deepspeed(stage, precision, train_batch_size=8))
    named = f"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: {config}\n"
    return ground.launched(ground.place("accelerate.yaml", named))


@pytest.mark.parametrize(("stage", "precision"), [(3, "fp32"), (3, "bf16"), (2, "fp32"), (0, "fp32")])
def test_a_deepspeed_config_under_accelerate_fsdp2(ground: Ground, stage: int, precision: str) -> None:
    source = ground.place("ds_config.json", deepspeed(stage, precision))
    path, done = ground.translated(source, "accelerate-fsdp2")
    run = ground.launched(path)
    assert run.kind == ("FSDP" if stage else "MULTI_GPU")
    assert run.model == ("FSDPModel" if stage else "DistributedDataParallel")
    assert done.report.overall == "close"
    assert apart(run, reference(ground, stage, precision)) <= CLOSE[precision]


def test_a_deepspeed_config_named_by_the_file(ground: Ground) -> None:
    source = ground.place("ds_config.json", deepspeed(3, "bf16", optimizer=OPTIMIZER))
    path, _ = ground.translated(source, "accelerate-deepspeed")
    assert "deepspeed_config_file" in path.read_text(encoding="utf-8")
    run = ground.launched(path, dummy=True, clip=None)
    assert run.kind == "DEEPSPEED"
    assert apart(run, reference(ground, 3, "bf16")) <= CLOSE["bf16"]


def test_a_deepspeed_config_in_flat_keys(ground: Ground) -> None:
    open_ = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"}
    source = ground.place("ds_config.json", deepspeed(2, "fp32") | open_)
    path, done = ground.translated(source, "accelerate-deepspeed")
    assert not done.beside
    assert "zero_stage: 2" in path.read_text(encoding="utf-8")
    run = ground.launched(path, clip=None)
    assert run.kind == "DEEPSPEED"
    assert run.losses == reference(ground, 2, "fp32").losses


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_fsdp1_becomes_fsdp2(ground: Ground, precision: str) -> None:
    source = ground.place("accelerate.yaml", fsdp("  fsdp_sharding_strategy: SHARD_GRAD_OP\n", precision))
    old = ground.launched(source, clip=None)
    path, _ = ground.translated(source, "accelerate-fsdp2")
    new = ground.launched(path, clip=None)
    assert (old.model, new.model) == ("FullyShardedDataParallel", "FSDPModel")
    assert new.losses == old.losses


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_shard_becomes_ddp(ground: Ground, precision: str) -> None:
    source = ground.place("accelerate.yaml", fsdp("  fsdp_sharding_strategy: NO_SHARD\n", precision))
    old = ground.launched(source, clip=None)
    new = ground.launched(ground.translated(source, "accelerate-fsdp2")[0], clip=None)
    assert (new.kind, new.model) == ("MULTI_GPU", "DistributedDataParallel")
    assert apart(old, new) <= CLOSE[precision]


def test_hybrid_shard_becomes_a_layout(ground: Ground) -> None:
    """Two machines of two are four processes here."""
    full = fsdp("  fsdp_version: 2\n", "fp32", 4)
    whole = ground.launched(ground.place("accelerate.yaml", full), clip=None)
    machines = "num_machines: 2\nmain_process_ip: 127.0.0.1\n"
    text = fsdp("  fsdp_sharding_strategy: HYBRID_SHARD\n", "fp32", 4, machines)
    path, _ = ground.translated(ground.place("accelerate.yaml", text), "accelerate-fsdp2", 4)
    written = path.read_text(encoding="utf-8")
    assert "dp_replicate_size: 2" in written
    path.write_text(written.replace("num_machines: 2", "num_machines: 1"), encoding="utf-8")
    assert apart(ground.launched(path, clip=None), whole) <= CLOSE["fp32"]


def test_fsdp2_becomes_deepspeed(ground: Ground) -> None:
    source = ground.place("accelerate.yaml", fsdp("  fsdp_version: 2\n"))
    old = ground.launched(source, clip=None)
    path, _ = ground.translated(source, "accelerate-deepspeed")
    new = ground.launched(path, clip=None)
    assert (old.kind, new.kind) == ("FSDP", "DEEPSPEED")
    assert apart(old, new) <= CLOSE["bf16"]


@pytest.mark.parametrize(
    ("section", "precision"),
    [
        ("  fsdp_version: 2\n", "fp32"),
        ("  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n", "bf16"),
        ("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", "bf16"),
        ("  fsdp_sharding_strategy: FULL_SHARD\n", "bf16"),
    ],
)
def test_fsdp_becomes_code(ground: Ground, section: str, precision: str) -> None:
    """The module trains as the file does, bit for bit."""
    source = ground.place("accelerate.yaml", fsdp(section, precision))
    under_accelerate = ground.launched(source, clip=None)
    as_code = ground.trained(source)
    assert as_code.model == "FSDPModel"
    assert as_code.kind == ("3" if "checkpointing" in section else "0"), "blocks in a CheckpointWrapper"
    assert as_code.losses == under_accelerate.losses
