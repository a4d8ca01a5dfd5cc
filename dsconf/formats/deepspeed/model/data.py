"""The section `data_efficiency`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section


class CurriculumSchedule(Section):
    """How the difficulty grows. Which keys are needed depends on schedule_type."""

    difficulty: Annotated[list[int] | None, Key(), Reads(null=False)] = None
    """fixed_discrete: the difficulties, one after the other."""
    max_step: Annotated[list[int] | None, Key(unit="steps"), Reads(null=False)] = None
    """fixed_discrete: the step at which each difficulty ends; the last one never does."""
    total_curriculum_step: Annotated[int | None, Key(unit="steps"), Reads(null=False)] = None
    """fixed_linear, fixed_root: steps until the highest difficulty."""
    difficulty_step: Annotated[int | None, Key(), Reads(null=False)] = None
    """fixed_linear, fixed_root: every difficulty is a multiple of this; for sequence lengths a multiple of 8
    is fast."""
    root_degree: Annotated[int | None, Key(), Reads(null=False)] = None
    """fixed_root: which root the growth follows: 1 a straight line, 2 the square root."""


class CurriculumMetric(Section):
    """One measure of how difficult a sample is."""

    index_to_sample_path: Annotated[str | None, Key(), Reads(null=False)] = None
    """The file of the data analyzer with the samples of each difficulty."""
    index_to_metric_path: Annotated[str | None, Key(), Reads(null=False)] = None
    """The file of the data analyzer with the difficulties."""
    difficulty_type: Annotated[Literal["value", "percentile"] | None, Key(), Reads(null=False)] = None
    """Whether difficulties are values of the measure or percentiles of the data."""
    clustering_type: Annotated[
        Literal["single_cluster", "schedule_based"] | None, Key(), Reads(null=False)
    ] = None
    """Whether samples are grouped by difficulty as the schedule goes on, or not at all."""
    min_difficulty: Annotated[int | None, Key(), Reads(null=False)] = None
    """Where the difficulty starts; required."""
    max_difficulty: Annotated[int | None, Key(), Reads(null=False)] = None
    """Where the difficulty ends; required."""
    schedule_type: Annotated[
        Literal["fixed_discrete", "fixed_root", "fixed_linear", "custom"] | None, Key(), Reads(null=False)
    ] = None
    """How the difficulty grows; required."""
    schedule_config: Annotated[CurriculumSchedule | None, Key(), Reads(fails="init", null=False)] = None
    """The numbers of the schedule."""


class CurriculumLearning(Section):
    """Easy samples first."""

    enabled: Annotated[bool, Key()] = False
    """Sample by difficulty; needs curriculum_metrics. What `enabled` says in the sections around it does not matter."""
    data_cluster_path: Annotated[str | None, Key(), Reads(null=False)] = None
    """The folder for the groups of samples."""
    curriculum_metrics: Annotated[
        dict[str, CurriculumMetric] | None, Key(), Reads(fails="init", null=False)
    ] = None
    """The measures of difficulty, each under a name of its own."""


class DynamicBatching(Section):
    """Batches of about as many tokens each instead of as many samples."""

    enabled: Annotated[bool, Key(), Reads(converts=True)] = False
    """Use it; needs max_tokens. What `enabled` says in the sections around it does not matter."""
    metrics_path: Annotated[str | None, Key(), Reads(null=False)] = None
    """The folder of the data analyzer with the length of each sample."""
    lr_scaling_method: Annotated[Literal["linear", "sqrt", "none"], Key(), Reads(converts=True)] = "linear"
    """How the learning rate follows the number of samples in a batch."""
    min_batch_size: Annotated[int, Key(unit="samples"), Reads(converts=True)] = 1
    """The fewest samples in a batch."""
    max_batch_size: Annotated[int | None, Key(unit="samples"), Reads(converts=True, null=False)] = None
    """The most samples in a batch."""
    sequence_picking_order: Annotated[
        Literal["random", "seqlen", "dataloader"], Key(), Reads(converts=True)
    ] = "dataloader"
    """The order in which samples are put into batches."""
    max_tokens: Annotated[int | None, Key(unit="tokens"), Reads(null=False)] = None
    """The most tokens in a batch."""
    verbose: Annotated[bool, Key(), Reads(converts=True)] = False
    """Print the batches."""


class DataSampling(Section):
    """Which samples are trained on, and when."""

    enabled: Annotated[bool, Key(status="inert")] = False
    """Nothing in DeepSpeed looks at it: the sections inside have switches of their own."""
    num_epochs: Annotated[int, Key(unit="epochs")] = 1000
    """The most epochs that the sampler makes."""
    num_workers: Annotated[int, Key(unit="processes")] = 0
    """Processes that load data."""
    pin_memory: Annotated[bool, Key()] = False
    """Load into page-locked memory."""
    curriculum_learning: Annotated[CurriculumLearning, Key()] = Field(default=CurriculumLearning())
    """Easy samples first."""
    dynamic_batching: Annotated[DynamicBatching, Key()] = Field(default=DynamicBatching())
    """Batches of about as many tokens each."""


class LtdScheduleConfig(Section):
    """The numbers of the schedule of random_ltd."""

    require_steps: Annotated[int | None, Key(unit="steps"), Reads(null=False)] = None
    """Steps until all tokens are kept."""
    seq_per_step: Annotated[int | None, Key(unit="tokens"), Reads(null=False)] = None
    """By how many tokens the number grows at a time."""


class LtdSchedule(Section):
    """How many tokens the layers keep."""

    min_value: Annotated[int | None, Key(unit="tokens"), Reads(null=False)] = None
    """Tokens at the start."""
    max_value: Annotated[int | None, Key(unit="tokens"), Reads(null=False)] = None
    """Tokens at the end: the length of a sequence."""
    schedule_type: Annotated[Literal["fixed_linear"] | None, Key(), Reads(null=False)] = None
    """How the number grows."""
    schedule_config: Annotated[LtdScheduleConfig | None, Key(), Reads(fails="init", null=False)] = None
    """The numbers of the schedule."""


class LayerTokenLr(Section):
    """A learning rate that follows the number of kept tokens."""

    enabled: Annotated[bool, Key()] = False
    """true raises NotImplementedError where random_ltd is on."""


class RandomLtd(Section):
    """Random layerwise token dropping: middle layers see a part of the tokens."""

    enabled: Annotated[bool, Key()] = False
    """Drop tokens; needs the keys below."""
    total_layer_num: Annotated[int | None, Key(unit="layers"), Reads(null=False)] = None
    """The number of layers of the model; required."""
    random_ltd_layer_num: Annotated[int | None, Key(unit="layers"), Reads(null=False)] = None
    """The number of layers that drop tokens; required."""
    random_ltd_layer_id: Annotated[list[int] | None, Key(), Reads(null=False)] = None
    """The indices of those layers, as many as random_ltd_layer_num says."""
    model_mask_name: Annotated[str | None, Key(), Reads(null=False)] = None
    """The name of the layers' argument that takes the attention mask."""
    model_type: Annotated[Literal["encoder", "decoder"] | None, Key(), Reads(null=False)] = None
    """The kind of model."""
    hidden_state_order: Annotated[
        Literal["batch_seq_dim", "seq_batch_dim"] | None, Key(), Reads(null=False)
    ] = None
    """Which dimension of the hidden states comes first."""
    random_ltd_schedule: Annotated[LtdSchedule | None, Key(), Reads(fails="init", null=False)] = None
    """How many tokens are kept."""
    layer_token_lr_schedule: Annotated[LayerTokenLr | None, Key(), Reads(fails="init", null=False)] = None
    """A learning rate that follows the number of kept tokens."""


class DataRouting(Section):
    """Which tokens the layers see."""

    enabled: Annotated[bool, Key(status="inert")] = False
    """Nothing in DeepSpeed looks at it: random_ltd has a switch of its own."""
    random_ltd: Annotated[RandomLtd, Key()] = Field(default=RandomLtd())
    """Random layerwise token dropping."""


class DataEfficiency(Section):
    """DeepSpeed's data efficiency library."""

    enabled: Annotated[bool, Key(status="inert")] = False
    """Nothing in DeepSpeed looks at it: curriculum_learning, dynamic_batching and random_ltd have switches of
    their own."""
    seed: Annotated[int, Key()] = 1234
    """The seed of the sampler."""
    data_sampling: Annotated[DataSampling, Key()] = Field(default=DataSampling())
    """Which samples are trained on, and when."""
    data_routing: Annotated[DataRouting, Key()] = Field(default=DataRouting())
    """Which tokens the layers see."""
