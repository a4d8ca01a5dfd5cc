"""What Accelerate's FSDP plugin does when a model is prepared, and when it is saved."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from examples import lint_json

pytestmark = pytest.mark.oracle

UTILS = "accelerate.utils"


def plugin(**arguments: Any) -> Any:
    return importlib.import_module(UTILS).FullyShardedDataParallelPlugin(**arguments)


def model() -> Any:
    """A model with the layers A and B."""
    torch = importlib.import_module("torch")
    classes = [type(name, (torch.nn.Linear,), {}) for name in ("A", "B")]
    return torch.nn.Sequential(*(made(2, 2) for made in classes))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("written", "found"),
    [("A,B", True), ("A, B", False), ('["A", "B"]', False), ("A,C", False), ("a", False)],
)
def test_layer_classes_are_looked_up_by_their_exact_names(
    version: int, written: str, found: bool, tmp_path: Path
) -> None:
    yaml = importlib.import_module("yaml")
    text = (
        "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n"
        f"  fsdp_version: {version}\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        f"  fsdp_transformer_layer_cls_to_wrap: {written}\n"
    )
    # The launcher makes text of the value, and the plugin splits it at its commas.
    exported = str(yaml.safe_load(text)["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"])
    made = plugin(
        fsdp_version=version,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=exported.split(","),
    )
    if found:
        made.set_auto_wrap_policy(model())
    else:
        with pytest.raises(ValueError, match="Could not find the transformer layer class"):
            made.set_auto_wrap_policy(model())
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    said = [each["rule"] for each in lint_json(path)[1]["findings"]]
    # Whether a model has a class is not known here.
    assert ("fsdp-wrap-class" in said) == (" " in written)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_what_is_gathered_on_rank_0_for_a_whole_checkpoint(version: int, kind: str) -> None:
    made = plugin(fsdp_version=version, state_dict_type=kind, cpu_offload=True)
    whole = kind == "FULL_STATE_DICT"
    assert made.state_dict_config.offload_to_cpu
    assert getattr(made.state_dict_config, "rank0_only", False) == whole
    assert made.optim_state_dict_config.offload_to_cpu, "the optimizer, too"
    if version == 2:
        options = importlib.import_module("accelerate.utils.fsdp_utils")._prepare_sd_options(made)
        assert (options.full_state_dict, options.cpu_offload) == (whole, True)
