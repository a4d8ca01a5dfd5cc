"""Writes tensor parallelism: the layers of a block divided over groups of ranks."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.formats.fsdp2.draft import ENDS_IN_ROOT, Draft
from dsconf.formats.fsdp2.emit import Constant
from dsconf.formats.outcome import Landing
from dsconf.plan import Plan

_STYLES = {
    "colwise": "ColwiseParallel()",
    "rowwise": "RowwiseParallel()",
    "colwise_gather_output": "ColwiseParallel(output_layouts=Replicate())",
    "colwise_rep": "ColwiseParallel(output_layouts=Replicate())",
    # Each rank has the norm whole, and some of the heads: its gradients are added up over the group.
    "replicated_with_grad_allreduce": "SequenceParallel(use_local_output=True)",
}
"""What stands for a style of transformers: for those that DeepSpeed takes, which refuses every other one."""
_WHOLE = ("embedding_rowwise",)
"""Styles of layers that DeepSpeed leaves whole."""
INSTEAD = (
    "--set tensor_parallel.autotp_size=0 leaves it out: ZeRO-3 divides the weights over all ranks instead"
)
_NAME_BLOCKS = "name the classes of the blocks with --blocks"
_FIELD = "parallelism.tensor"
_STYLED = ("parallelism.block_styles", "parallelism.root_styles")
_CLOSE = "DeepSpeed divides the same layers; sums over a group round differently"
_TIED = "a head that is tied to the embedding stays whole on each rank, where DeepSpeed divides it"

Parts = list[tuple[str, list[str]]]


def write_parallelism(draft: Draft) -> Parts:
    """Write the plan of the layers, and return what the module needs of the parts; write_sharding comes first."""
    parallel = draft.plan.parallelism
    draft.flags["TENSOR_PARALLEL"] = False
    for field in ("context", "sequence"):
        divided = getattr(parallel, field) > 1
        note = f"{field} parallelism needs the model's own attention" if divided else "sequences are whole"
        draft.landings[f"parallelism.{field}"] = Landing("unsupported" if divided else "exact", "", note)
    if parallel.tensor <= 1:
        return []
    problem = _problem(draft)
    if problem:
        landing = draft.landings[_FIELD] = Landing("unsupported", "", *problem)
        draft.landings |= dict.fromkeys(_STYLED, landing)
        return []
    if draft.flags["SEPARATE_ENDS"]:
        draft.landings["wrapping.separate_ends"] = ENDS_IN_ROOT
    draft.flags.update(TENSOR_PARALLEL=True, SEPARATE_ENDS=False)
    label = draft.labels["parallelism.block_styles"]
    draft.constants["TENSOR_SIZE"] = Constant(str(parallel.tensor), draft.labels[_FIELD])
    draft.constants["BLOCK_STYLES"] = Constant(_source(parallel.block_styles), label)
    draft.constants["ROOT_STYLES"] = Constant(_source(parallel.root_styles), label)
    target = f'parallelize_module(block, mesh["tp"], {len(_styles(parallel.block_styles))} layers)'
    action = f"give the {parallel.tensor} ranks of a group the same batch"
    note = _CLOSE if parallel.root_styles else f"{_CLOSE}; {_TIED}"
    landing = draft.landings[_FIELD] = Landing("close", target, note, action)
    draft.landings |= dict.fromkeys(_STYLED, landing._replace(action=None))
    return [("tensor_parallel", ["meshes", "gradient_norm"])]


def batch_lines(draft: Draft) -> list[str]:
    """What the docstring says of batches; nothing without tensor parallelism."""
    size = draft.plan.parallelism.tensor
    if not draft.flags["TENSOR_PARALLEL"]:
        return []
    own = [] if draft.plan.optimizer else ["The optimizer needs foreach=False: parameters lie on two meshes."]
    return [
        f"Each {size} ranks in a row (0 to {size - 1}, and so on) divide the layers among them, and have to see the",
        f"same batches: DistributedSampler(dataset, num_replicas=world_size // {size}, rank=rank // {size}).",
        *own,
    ]


def _problem(draft: Draft) -> tuple[str, str] | None:
    """Why it can't be written, and what to do."""
    plan = draft.plan
    styles = {**plan.parallelism.block_styles, **plan.parallelism.root_styles}
    if not plan.parallelism.block_styles:
        return draft.labels["parallelism.block_styles"], draft.labels["parallelism.action"]
    if draft.flags["SIZED_BLOCKS"] or draft.flags["ROOT_ONLY"]:
        which = "chosen by size" if draft.flags["SIZED_BLOCKS"] else "the whole model"
        return f"layers are named by their path in a block, and the units are {which}", _NAME_BLOCKS
    unknown = sorted({*styles.values()} - {*_STYLES, *_WHOLE})
    if unknown:
        return (
            f"torch has no counterpart of {', '.join(unknown)}, which the model's plan has, and DeepSpeed refuses it",
            INSTEAD,
        )
    beside = _not_compared(plan)
    if beside:
        return f"together with {', '.join(beside)} it was never compared with DeepSpeed", INSTEAD
    if plan.optimizer is not None and plan.optimizer.name == "Muon":
        return "Muon needs whole matrices, and tensor parallelism divides them", "choose AdamW"
    if plan.optimizer is not None and plan.optimizer.arguments.get("fused"):
        why = "the fused optimizer works on one mesh at a time, and parameters lie on two"
        return why, "--set optimizer.params.fused=false"
    return None


def _not_compared(plan: Plan) -> list[str]:
    """Settings that no parity run has beside tensor parallelism."""
    hpz = not isinstance(plan.sharding.reshard_after_forward, bool)
    settings = {
        "offload": plan.offload.parameters or plan.offload.optimizer,
        "fp16": plan.precision.compute == "fp16",
        "torch_autocast": plan.precision.autocast is not None,
        "16-bit masters": plan.precision.masters != "fp32",
        "hpZ": hpz,
        "MiCS": plan.sharding.group is not None,
    }
    return [name for name, is_on in settings.items() if is_on]


def _styles(styles: Mapping[str, str]) -> dict[str, str]:
    return {path: _STYLES[style] for path, style in styles.items() if style in _STYLES}


def _source(styles: Mapping[str, str]) -> str:
    """A dict, one layer a line."""
    lines = [f'    "{path}": {style},\n' for path, style in _styles(styles).items()]
    return f"{{\n{''.join(lines)}}}" if lines else "{}"
