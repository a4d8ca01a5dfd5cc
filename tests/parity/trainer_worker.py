"""One rank of a run of the real Trainer on files of arguments, one after the other: losses and rates of each step.

`python trainer_worker.py JOBS RESULTS`: JOBS is a JSON object of YAML files by name.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")
state: Any = importlib.import_module("accelerate.state")
yaml: Any = importlib.import_module("yaml")

LENGTH, WORDS, SAMPLES = 8, 67, 64


class Recorder(transformers.TrainerCallback):  # type: ignore[misc]
    """Notes the loss and the rate of each step, and what was built."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.built: dict[str, str] = {}

    def on_train_begin(self, args: Any, progress: Any, control: Any, **given: Any) -> None:
        optimizer = given["optimizer"]
        self.built = {"model": type(given["model"]).__name__, "optimizer": type(optimizer).__name__}

    def on_log(self, args: Any, progress: Any, control: Any, **given: Any) -> None:
        logs = given["logs"]
        if "loss" in logs:
            # DeepSpeed has no norm of fp32 gradients without ZeRO.
            self.steps.append({name: float(logs[name]) for name in ("loss", "grad_norm") if name in logs})


def samples() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    words = [torch.randint(0, WORDS, (LENGTH,), generator=generator) for _ in range(SAMPLES)]
    return [{"input_ids": each, "labels": each} for each in words]


def model() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            vocab_size=WORDS,
        )
    )


def train(values: dict[str, Any]) -> dict[str, Any]:
    """Train with some arguments, on CPUs, where Accelerate would leave FSDP out."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        usual: dict[str, Any] = {
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        values.pop("ddp_backend", None)  # that of GPUs
        own: dict[str, Any] = {**values, **usual, "output_dir": folder, "logging_steps": 1, "max_steps": 4}
        arguments = transformers.TrainingArguments(**own)
        if arguments.fsdp:
            state.PartialState._shared_state["distributed_type"] = state.DistributedType.MULTI_GPU
        recorder = Recorder()
        trainer = transformers.Trainer(
            model=model(), args=arguments, train_dataset=samples(), callbacks=[recorder]
        )
        kind = str(trainer.accelerator.distributed_type).rpartition(".")[2]
        trainer.train()
    # Plugins of Accelerate leave variables to whoever comes next.
    os.environ.clear()
    os.environ.update(before)
    state.AcceleratorState._reset_state(reset_partial_state=True)
    state.GradientState._reset_state()
    transformers.integrations.deepspeed.unset_hf_deepspeed_config()
    return {"kind": kind, "steps": recorder.steps, **recorder.built}


def main() -> None:
    jobs, results = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    found = {}
    for name, path in jobs.items():
        try:
            found[name] = train(yaml.safe_load(Path(path).read_text()))
        except Exception as error:
            found[name] = {"error": repr(error)}
    if os.environ["RANK"] == "0":
        results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
