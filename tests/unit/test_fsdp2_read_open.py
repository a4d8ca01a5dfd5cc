"""What FSDP2 code leaves open is never said to be exact."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from dsconf.cli import main
from dsconf.config.context import Context
from dsconf.formats.fsdp2.read import read
from dsconf.formats.reading import Reading
from dsconf.translate.run import translate

HEAD = """
import torch
from contextlib import nullcontext
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.optim import lr_scheduler
from transformers import get_scheduler
from nets import args

class Block(nn.Module): ...

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(4)])

model = {model}
for block in model.layers:
    fully_shard(block{given})
fully_shard(model{given})
"""
BF16 = ", mp_policy=MixedPrecisionPolicy(torch.bfloat16)"
TRAINED = "for x in loader:\n    model(x).sum().backward()\n    optimizer.step()\n"


def code_of(more: str = "", model: str = "Net()", given: str = "") -> str:
    return HEAD.format(model=model, given=given) + dedent(more)


def reading_of(more: str = "", model: str = "Net()", given: str = "") -> Reading:
    return read(code_of(more, model, given), "train.py")


def outcome(reading: Reading, key: str) -> str:
    """What the reader says of a key; "" where it says nothing."""
    said = {item.key: item.outcome for item in reading.items}
    return said.get(key) or (reading.remarks[key].outcome if key in reading.remarks else "")


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("optimizer = torch.optim.SGD(groups_of(model))", "SGD.params"),
        ("if args.plain:\n    optimizer = torch.optim.SGD(model.parameters())\n" + TRAINED, "SGD"),
        (
            "optimizer = torch.optim.SGD(model.parameters())\nif args.falls:\n"
            "    lr_scheduler.StepLR(optimizer, 3)\n" + TRAINED,
            "StepLR",
        ),
        (
            "o = torch.optim.SGD(model.parameters())\nlr_scheduler.StepLR(o, **args.curve)",
            "StepLR (arguments)",
        ),
        (
            (
                "o = torch.optim.SGD(model.parameters())\n"
                "get_scheduler('cosine', o, 1, 9, scheduler_specific_kwargs=args.more)"
            ),
            "get_scheduler.scheduler_specific_kwargs",
        ),
        ("if args.saves:\n    model.gradient_checkpointing_enable()", "gradient_checkpointing_enable"),
        ("if args.clip:\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_.max_norm"),
        (
            "torch.utils.data.DataLoader(a, batch_size=4)\ntorch.utils.data.DataLoader(b, batch_size=8)",
            "DataLoader.batch_size",
        ),
        (
            (
                "autocast = torch.autocast('cuda', torch.bfloat16) if args.amp else nullcontext()\n"
                "with autocast:\n    loss = model(x)"
            ),
            "torch.autocast",
        ),
    ],
)
def test_what_depends_on_the_run_needs_a_value(more: str, key: str) -> None:
    assert outcome(reading_of(more), key) == "needs-value"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("optimizer = torch.optim.SGD(model.parameters())", "SGD.params"),
        ("optimizer = torch.optim.SGD(model.parameters())\n" + TRAINED, "SGD"),
        ("o = torch.optim.SGD(model.parameters())\nlr_scheduler.StepLR(o, 3)", "StepLR"),
        ("o = torch.optim.SGD(model.parameters())\nlr_scheduler.StepLR(o, 3)", "StepLR (arguments)"),
        (
            (
                "o = torch.optim.SGD(model.parameters())\n"
                "get_scheduler('cosine', o, 1, 9, scheduler_specific_kwargs={'num_cycles': 0.5})"
            ),
            "get_scheduler.scheduler_specific_kwargs",
        ),
        ("model.gradient_checkpointing_enable()", "gradient_checkpointing_enable"),
        ("nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_.max_norm"),
        ("torch.utils.data.DataLoader(a, batch_size=4)", "DataLoader.batch_size"),
        ("with torch.autocast('cuda', torch.bfloat16):\n    loss = model(x)", "torch.autocast"),
    ],
)
def test_what_the_code_determines_needs_none(more: str, key: str) -> None:
    assert outcome(reading_of(more), key) == ""


def test_a_mesh_that_is_not_known_needs_a_value() -> None:
    assert outcome(reading_of(given=", mesh=args.mesh"), "fully_shard.mesh") == "needs-value"


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("Net()", BF16, "exact"),
        ("Net().cuda()", BF16, "exact"),
        ("torch.compile(Net().train())", BF16, "exact"),
        ("nn.Transformer()", BF16, "exact"),
        ("args.build()", BF16, "needs-value"),
        ("args.build()", "", "exact"),
    ],
)
def test_the_dtype_of_a_model_is_known_where_the_file_builds_it_or_nothing_casts(
    model: str, given: str, expected: str
) -> None:
    assert outcome(reading_of(model=model, given=given), "model dtype") == expected


def test_a_model_without_a_call_of_its_own_has_no_known_dtype() -> None:
    code = code_of(given=BF16).replace(f"fully_shard(model{BF16})\n", "")
    assert outcome(read(code, "x.py"), "model dtype") == "needs-value"


@pytest.mark.parametrize("model", ["Net()", "Net().cuda()", "torch.compile(Net().to('cuda'))"])
def test_the_classes_of_blocks_are_known_however_the_model_was_moved(model: str) -> None:
    assert reading_of(model=model).plan.wrapping.block_classes == ("Block",)


def test_every_argument_of_a_scheduler_is_taken() -> None:
    schedule = reading_of(
        "o = torch.optim.SGD(model.parameters())\n"
        "lr_scheduler.CyclicLR(o, 0.1, 0.2, cycle_momentum=False, max_momentum=0.5)"
    ).plan.schedule
    assert schedule is not None
    assert schedule.model_dump()["arguments"] == {
        "base_lr": 0.1,
        "max_lr": 0.2,
        "cycle_momentum": False,
        "max_momentum": 0.5,
    }


@pytest.mark.parametrize(
    ("module", "arguments", "warmup"),
    [("transformers", "7, 9", 7), ("diffusers.optimization", "rules, 7, 9", 7)],
)
def test_arguments_by_position_are_those_of_the_library(module: str, arguments: str, warmup: int) -> None:
    more = f"""
    from {module} import get_scheduler
    optimizer = torch.optim.SGD(model.parameters())
    get_scheduler("linear", optimizer, {arguments})
    """
    schedule = reading_of(more).plan.schedule
    assert schedule is not None
    values = schedule.model_dump()
    assert (values["warmup_steps"], values["total_steps"]) == (warmup, 9)


@pytest.mark.parametrize("target", ["deepspeed", "fsdp2"])
def test_what_a_reader_leaves_open_is_open_in_the_report(target: str, tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text(
        code_of(
            "if args.clip:\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            given=", mp_policy=MixedPrecisionPolicy(args.dtype)",
        )
    )
    items = translate(str(source), target, Context(), {}, ()).report.items
    said = {item.key: item.outcome for item in items}
    assert said["clip_grad_norm_.max_norm"] == "needs-value"
    assert said["MixedPrecisionPolicy.param_dtype"] == "needs-value"


@pytest.mark.parametrize("target", ["deepspeed", "fsdp2"])
def test_code_for_fsdp1_is_refused_by_its_name(target: str, tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(build())\n"
    )
    result = CliRunner().invoke(main, ["translate", str(source), "--to", target])
    assert result.exit_code == 2
    assert "2:9: FullyShardedDataParallel is FSDP1, whose code is not read" in result.output


OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters())\n"
PARALLEL = (
    "from torch.distributed.device_mesh import init_device_mesh as mesh_of\n"
    "from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel\n"
    "parallelize_module({}, mesh_of('cuda', (4, 2)), {{'up': {}}})"
)


@pytest.mark.parametrize(
    ("more", "key", "expected"),
    [
        ("fully_shard(Net(), dp_mesh_dims=args.dims)", "fully_shard.dp_mesh_dims", "needs-value"),
        ("fully_shard(Net(), ignored_params=args.some)", "fully_shard.ignored_params", "approximate"),
        (
            "from torch.distributed.tensor.experimental import context_parallel\ncontext_parallel()",
            "context_parallel",
            "unsupported",
        ),
        (
            "from torch.distributed.pipelining import PipelineStage\nPipelineStage()",
            "pipelining",
            "unsupported",
        ),
        (PARALLEL.format("model", "args.style"), "parallelize_module.up", "unsupported"),
        ("model.set_gradient_divide_factor(4)", "set_gradient_divide_factor", "unsupported"),
        ("torch.amp.GradScaler('cuda', growth_factor=3.0)", "GradScaler.growth_factor", "approximate"),
        ("torch.amp.GradScaler('cuda', args.scale)", "GradScaler.init_scale", "needs-value"),
        (
            "with torch.autocast('cuda', torch.half, args.amp):\n    model(x)",
            "torch.autocast.enabled",
            "needs-value",
        ),
        ("with torch.autocast('cuda', args.dtype):\n    model(x)", "torch.autocast.dtype", "needs-value"),
        (
            "nn.utils.clip_grad_norm_(model.parameters(), 1.0, 1)",
            "clip_grad_norm_.norm_type",
            "unsupported",
        ),
        (
            "nn.utils.clip_grad_value_(model.parameters(), 1.0)",
            "clip_grad_value_.clip_value",
            "unsupported",
        ),
        (
            "for p in parts:\n    nn.utils.clip_grad_norm_(p, 1.0)\nnn.utils.clip_grad_norm_(q, 2.0)",
            "clip_grad_norm_.max_norm",
            "approximate",
        ),
        ("torch.optim.SGD([{'params': model.parameters(), 'lr': 1}])", "SGD.params", "approximate"),
        ("torch.optim.LBFGS(model.parameters())", "optimizer", "unsupported"),
        (OPTIMIZER + "get_scheduler(args.curve, optimizer, 1, 9)", "get_scheduler", "needs-value"),
        (
            OPTIMIZER + "lr_scheduler.StepLR(optimizer, 3)\nlr_scheduler.ConstantLR(optimizer)",
            "lr_scheduler",
            "needs-value",
        ),
    ],
)
def test_what_no_config_can_say_is_told(more: str, key: str, expected: str) -> None:
    assert outcome(reading_of(more), key) == expected


@pytest.mark.parametrize(
    ("given", "key", "expected"),
    [
        (
            ", mp_policy=MixedPrecisionPolicy(torch.half, cast_forward_inputs=args.cast)",
            "MixedPrecisionPolicy.cast_forward_inputs",
            "needs-value",
        ),
        (
            ", mp_policy=MixedPrecisionPolicy(torch.half, args.dtype)",
            "MixedPrecisionPolicy.reduce_dtype",
            "needs-value",
        ),
        (", reshard_after_forward=args.frees", "fully_shard.reshard_after_forward", "needs-value"),
        (
            ", offload_policy=torch.distributed.fsdp.CPUOffloadPolicy(args.pin)",
            "CPUOffloadPolicy.pin_memory",
            "needs-value",
        ),
        (", offload_policy=args.offload", "fully_shard.offload_policy", "needs-value"),
    ],
)
def test_an_open_argument_of_fully_shard_needs_a_value(given: str, key: str, expected: str) -> None:
    assert outcome(reading_of(given=given), key) == expected


@pytest.mark.parametrize(("module", "where"), [("model.layers[0]", "block_styles"), ("model", "root_styles")])
def test_layers_are_divided_over_the_last_dimension_of_a_mesh(module: str, where: str) -> None:
    parallelism = reading_of(PARALLEL.format(module, "ColwiseParallel()")).plan.parallelism
    assert parallelism.tensor == 2
    assert parallelism.model_dump()[where] == {"up": "colwise"}


def test_blocks_without_a_root_leave_parameters_whole() -> None:
    code = code_of().replace("fully_shard(model)\n", "")
    assert outcome(read(code, "x.py"), "fully_shard.module (root)") == "approximate"


def test_a_pretrained_model_has_no_known_dtype_unless_the_call_says_it() -> None:
    loaded = "transformers.AutoModel.from_pretrained('x'{})"
    code = "import transformers\n" + code_of(model=loaded.format(""))
    assert outcome(read(code, "x.py"), "model dtype") == "needs-value"
    code = "import transformers\n" + code_of(model=loaded.format(", dtype=torch.bfloat16"))
    assert outcome(read(code, "x.py"), "model dtype") == ""
