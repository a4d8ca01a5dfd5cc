"""What it costs to lint one file: CPU time of the installed `dsconf`, held against starting Python at all.

It builds the wheel, installs it into a fresh environment, and runs what pip put there. Exit status 1 over the budget.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 40
BUDGETS = {".json": 6.5, ".yaml": 15.0}
"""Times the CPU of `python -c pass`, by the kind of file: YAML is read by ruamel.yaml, which takes its time."""
REPEAT = 50
ACCELERATE = """\
# FSDP2 on two machines with eight GPUs each: accelerate launch --config_file forty_lines.yaml train.py
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false

# the layers are named by the model
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_offload_params: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_cpu_ram_efficient_loading: true
  fsdp_activation_checkpointing: true

# two groups of eight
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 8
  parallelism_config_tp_size: 1
  parallelism_config_cp_size: 1

# the machines
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true

main_training_function: main
mixed_precision: bf16
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""


def install(folder: Path) -> Path:
    """Build the wheel and install it into a new environment; the folder of its commands."""
    python = [sys.executable, "-m"]
    run([*python, "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)])
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    commands = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(
        [
            str(commands / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            str(wheel),
        ]
    )
    return commands


def run(command: list[str]) -> None:
    """Run quietly. Raises RuntimeError, with what it said, where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")


def sixty_lines(folder: Path) -> Path:
    """A config of 60 lines, as people write them."""
    zero = {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": 5e8,
        "sub_group_size": 1e9,
        "stage3_prefetch_bucket_size": 5e7,
        "stage3_param_persistence_threshold": 100000,
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    }
    adamw = {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    warmup = {"warmup_min_lr": 0, "warmup_max_lr": 3e-4, "warmup_num_steps": 500, "total_num_steps": 10000}
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
        "gradient_clipping": 1.0,
        "steps_per_print": 10,
        "wall_clock_breakdown": False,
        "zero_allow_untested_optimizer": True,
        "data_types": {"grad_accum_dtype": "fp32"},
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": adamw},
        "scheduler": {"type": "WarmupDecayLR", "params": warmup},
        "activation_checkpointing": {"partition_activations": True, "contiguous_memory_optimization": True},
    }
    path = folder / "sixty_lines.json"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return path


def forty_lines(folder: Path) -> Path:
    """A config of `accelerate launch` of 40 lines, as `accelerate config` and people write them."""
    path = folder / "forty_lines.yaml"
    path.write_text(ACCELERATE, encoding="utf-8")
    return path


def cpu(command: list[str], folder: Path) -> float:
    """User and system milliseconds of one run in a folder, which Python looks through when it imports something.

    Raises RuntimeError where it fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}: {said.decode()}")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def together(found: list[float], base: list[float]) -> float:
    """The median of the ratios of runs one after the other: a busy machine slows both, where minima need luck."""
    return statistics.median(one / other for one, other in zip(found, base, strict=True))


def throughput(commands: Path, folder: Path) -> str:
    """Files per second once dsconf has started: every fixture, many times, in one process."""
    files = [str(path) for path in sorted((ROOT / "fixtures").rglob("*.json"))] * REPEAT
    program = (
        "import sys, time\n"
        "from dsconf.config.context import Context\n"
        "from dsconf.lint.engine import lint_file\n"
        "from dsconf.lint.index import load_rules\n"
        "rules, context = load_rules(), Context('deepspeed', 8)\n"
        "lint_file(sys.argv[1], rules, context)\n"
        "start = time.process_time()\n"
        "for path in sys.argv[1:]: lint_file(path, rules, context)\n"
        "print((len(sys.argv) - 1) / (time.process_time() - start))\n"
    )
    command = [str(commands / "python"), "-c", program, *files]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return f"{float(done.stdout):,.0f} files/s in one process ({len(files)} reads of the fixtures)"


def main() -> int:
    """Measure, print a table, and judge."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        commands = install(folder)
        print(f"wheel built and installed in {time.perf_counter() - start:.0f} s")
        empty = folder / "empty"
        empty.mkdir()
        python, dsconf = str(commands / "python"), str(commands / "dsconf")
        demo = str(ROOT / "fixtures" / "demo" / "ds_config.json")
        rows = {
            "python -c pass": [python, "-c", "pass"],
            'python -c "import click"': [python, "-c", "import click"],
            "dsconf lint demo/ds_config.json": [dsconf, "lint", demo],
            "dsconf lint sixty_lines.json": [dsconf, "lint", str(sixty_lines(folder))],
            "dsconf lint forty_lines.yaml": [dsconf, "lint", str(forty_lines(folder))],
        }
        times: dict[str, list[float]] = {label: [] for label in rows}
        for label in rows:  # bytecode and file caches
            cpu(rows[label], empty)
        for _ in range(RUNS):
            for label, command in rows.items():
                times[label].append(cpu(command, empty))
        ratios = {label: together(found, times["python -c pass"]) for label, found in times.items()}
        print(f"{'CPU of one run, ms':<34} {'minimum':>8} {'median':>8} {'median ratio':>13}")
        for label, found in times.items():
            print(f"{label:<34} {min(found):>8.1f} {statistics.median(found):>8.1f} {ratios[label]:>13.2f}")
        print(throughput(commands, empty))
    exceeded = False
    for kind, budget in BUDGETS.items():
        worst = max(ratio for label, ratio in ratios.items() if label.endswith(kind))
        exceeded |= worst > budget
        print(f"budget of {kind} {budget}: {'kept' if worst <= budget else 'exceeded'} ({worst:.2f})")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
