"""The section `autotuning`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section


class ModelInfo(Section):
    """What is known of the model, so that it need not be measured."""

    profile: Annotated[bool, Key()] = False
    """Set by the tuner for its own run that measures the model."""
    num_params: Annotated[int | None, Key(unit="parameters")] = None
    """The number of parameters."""
    hidden_size: Annotated[int | None, Key()] = None
    """The width of the model."""
    num_layers: Annotated[int | None, Key()] = None
    """The number of layers."""


class Autotuning(Section):
    """The search for a fast configuration, which the deepspeed launcher runs with --autotuning."""

    enabled: Annotated[bool, Key()] = False
    """Search. It also turns the flops profiler on."""
    fast: Annotated[bool, Key()] = True
    """Search over ZeRO stages and micro batch sizes only."""
    results_dir: Annotated[str, Key(), Reads(not_empty=True)] = "autotuning_results"
    """The folder for the results."""
    exps_dir: Annotated[str, Key(), Reads(not_empty=True)] = "autotuning_exps"
    """The folder for the configs that are tried."""
    overwrite: Annotated[bool, Key()] = True
    """Run experiments again that have results already."""
    metric: Annotated[Literal["latency", "throughput", "flops", "forward", "step"], Key()] = "throughput"
    """What is made best."""
    metric_path: Annotated[str | None, Key()] = None
    """Set by the tuner: the file for the measured values."""
    start_profile_step: Annotated[int, Key(unit="steps")] = 3
    """The first step that is measured."""
    end_profile_step: Annotated[int, Key(unit="steps")] = 5
    """The last step that is measured."""
    tuner_type: Annotated[Literal["gridsearch", "random", "model_based"], Key()] = "gridsearch"
    """The order in which configurations are tried."""
    tuner_early_stopping: Annotated[int, Key(unit="experiments")] = 5
    """Experiments without a better result after which the search ends."""
    tuner_num_trials: Annotated[int, Key(unit="experiments")] = 50
    """The most experiments per ZeRO stage."""
    arg_mappings: Annotated[dict[str, Any] | None, Key(), Reads(fails="init")] = None
    """For keys of this config the names of the script's own arguments that have to follow them."""
    max_train_batch_size: Annotated[int | None, Key(unit="samples")] = None
    """The largest train_batch_size to try; null sets no limit."""
    min_train_batch_size: Annotated[int, Key(unit="samples")] = 1
    """The smallest train_batch_size to try."""
    max_train_micro_batch_size_per_gpu: Annotated[int, Key(unit="samples")] = 1024
    """The largest micro batch to try."""
    min_train_micro_batch_size_per_gpu: Annotated[int, Key(unit="samples")] = 1
    """The smallest micro batch to try."""
    num_tuning_micro_batch_sizes: Annotated[int, Key()] = 3
    """How many micro batch sizes are tried."""
    mp_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks over which the script splits the model by itself."""
    model_info: Annotated[ModelInfo | None, Key()] = None
    """What is known of the model."""
    model_info_path: Annotated[str | None, Key()] = None
    """Set by the tuner: the file for what it measures of the model."""
