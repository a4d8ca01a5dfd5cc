"""The section `expert_parallel`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

Preset = Literal["mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3"]


class ExpertParallel(Section):
    """Automatic expert parallelism of MoE models (AutoEP). Only load_balance_coeff is checked while it is
    off."""

    enabled: Annotated[bool, Key()] = False
    """Replace the MoE layers of the model by expert-parallel ones."""
    autoep_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks over which the experts are dealt out; times expert_tensor_parallel_size it has to divide the
    number of processes of a pipeline stage."""
    expert_tensor_parallel_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks over which each expert is split; only 1 is possible yet."""
    preset_model: Annotated[Preset | None, Key()] = None
    """A kind of model whose layers DeepSpeed knows; null finds out."""

    # Where the layers are, for models without a preset.
    moe_layer_pattern: Annotated[str | None, Key()] = None
    """A regular expression for the names of the MoE layers."""
    router_pattern: Annotated[str | None, Key()] = None
    """The name of the router in such a layer."""
    expert_pattern: Annotated[str | None, Key()] = None
    """The name of the experts in such a layer."""
    expert_w1: Annotated[str | None, Key()] = None
    """The name of an expert's gate weight, or of gate and up in one."""
    expert_w2: Annotated[str | None, Key()] = None
    """The name of an expert's down weight."""
    expert_w3: Annotated[str | None, Key(), Reads(unset=True)] = None
    """The name of an expert's up weight. null says that expert_w1 holds gate and up; left out, the preset
    decides."""
    has_shared_experts: Annotated[bool | None, Key()] = None
    """Whether some experts see every token; null leaves it to the preset."""
    shared_experts_pattern: Annotated[str | None, Key()] = None
    """The name of the shared experts in such a layer."""
    shared_experts_gate_pattern: Annotated[str | None, Key()] = None
    """The name of the gate of the shared experts."""
    num_experts_attr: Annotated[str | None, Key()] = None
    """The attribute of the model's config that holds the number of experts."""
    top_k_attr: Annotated[str | None, Key()] = None
    """The attribute of the model's config that holds the number of experts per token."""

    # How tokens choose experts.
    top_k: Annotated[int | Literal["auto"], Key(unit="experts")] = "auto"
    """Experts per token; "auto" takes the model's."""
    score_func: Annotated[Literal["auto", "softmax", "sigmoid"], Key()] = "auto"
    """How the router's outputs become scores; "auto" does as the model."""
    score_apply: Annotated[Literal["auto", "pre", "post"], Key()] = "auto"
    """Whether scores act before or after the experts; "auto" does as the model."""
    route_norm: Annotated[bool | None, Key()] = None
    """Make the scores of a token add up to 1; null does as the model."""
    route_scale: Annotated[float, Key()] = 1.0
    """A factor on the scores, for models that say nothing of one."""
    routed_scaling_factor: Annotated[float | Literal["auto"], Key()] = "auto"
    """The factor on the scores where it is a number; "auto" takes the model's, and route_scale where the model
    has none."""
    num_expert_groups: Annotated[int | None, Key(unit="groups")] = Field(None, ge=1)
    """Groups of experts among which a token chooses first."""
    num_limited_groups: Annotated[int | None, Key(unit="groups")] = Field(None, ge=1)
    """Groups that a token may use; not more than num_expert_groups."""
    load_balance_coeff: Annotated[None, Key(), Reads(fails="parse")] = None
    """Not supported: everything but null is refused, also while expert parallelism is off."""

    # How experts are computed.
    expert_activation: Annotated[
        Literal["swiglu", "geglu_tanh", "swiglu_clamped", "swiglu_oai"] | None, Key()
    ] = None
    """The activation inside the experts; null does as the model."""
    use_grouped_mm: Annotated[bool, Key()] = True
    """Compute all experts of a rank in one matrix product instead of one after the other."""
    disable_triton_grouped_mm: Annotated[bool, Key()] = False
    """Do not use the Triton kernel for it."""
    gate_up_impl: Annotated[Literal["separate", "fused"], Key()] = "separate"
    """Whether gate and up are one product; "fused" needs use_grouped_mm."""
    combine_impl: Annotated[Literal["auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"], Key()] = (
        "auto"
    )
    """How the outputs of a token's experts are added up."""
    row_weighting_impl: Annotated[Literal["auto", "eager", "fused"], Key()] = "auto"
    """How scores are applied to rows; "fused" needs comm_backend "deepep" and an autoep_size above 1."""

    # How tokens travel.
    comm_backend: Annotated[Literal["comm", "deepep"], Key()] = "comm"
    """What sends tokens to their experts: torch.distributed, or the package DeepEP."""
    comm_num_sm: Annotated[int, Key()] = Field(12, ge=1)
    """DeepEP: the multiprocessors of a GPU that communicate."""
    comm_qp_margin: Annotated[int, Key()] = Field(4, ge=0)
    """DeepEP: spare queue pairs between nodes."""
    comm_max_tokens_per_rank: Annotated[int, Key(unit="tokens")] = Field(0, ge=0)
    """DeepEP: the most tokens of a rank in one pass; it has to be given there."""
    async_split_plan: Annotated[bool, Key()] = False
    """Find out how many tokens go where while other computations run."""
    validate_folding_routing: Annotated[bool, Key()] = False
    """Check that ranks which should route alike do; for finding faults."""
