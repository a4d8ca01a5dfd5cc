"""Writes `dsconf/formats/transformers/architectures.json` from the installed transformers.

    ./dev architectures

A model of each `model_type` is built from its default config, on the meta device. What can't be built so (needs another
package, or has no defaults) is left out, and told on stderr.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsconf.document.write import write_text

FILE = Path(__file__).parents[1] / "dsconf" / "formats" / "transformers" / "architectures.json"
TASKS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
"""The first of these whose class of a `model_type` can be built says what is built."""

LACKING: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33, "pad_token_id": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
"""What a model needs that its default config does not say."""

Entry = dict[str, Any]


def main() -> int:
    """Write the file."""
    entries = {}
    for model_type in model_types():
        for name in classes_of(model_type):
            try:
                entries[model_type] = entry_of(build(model_type, name))
                break
            except Exception as error:
                sys.stderr.write(
                    f"{model_type} {name}: {type(error).__name__}: {str(error).strip()[:80]!r}\n"
                )
    write_text(FILE, text_of(split(entries)))
    return 0


def model_types() -> list[str]:
    """Every `model_type` that has a model, in order."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return sorted({name for task in TASKS for name in getattr(auto, task)})


def classes_of(model_type: str) -> list[str]:
    """The names of its classes, by task."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    names = [found for task in TASKS if (found := getattr(auto, task).get(model_type)) is not None]
    return list(dict.fromkeys(name if isinstance(name, str) else name[0] for name in names))


def build(model_type: str, name: str, **changes: Any) -> Any:
    """A model without weights, from the default config with `changes`."""
    torch, transformers = (importlib.import_module(module) for module in ("torch", "transformers"))
    transformers.logging.set_verbosity_error()
    config = transformers.CONFIG_MAPPING[model_type](**LACKING.get(model_type, {}) | changes)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        return getattr(transformers, name)(config)


def entry_of(model: Any) -> Entry:
    """What the file says of a model."""
    blocks = block_classes(model)
    parts = {}
    for name, section in getattr(model.config, "sub_configs", {}).items():
        part = getattr(model.config, name, None)
        if getattr(section, "__name__", "") == "AutoConfig" and part is not None:
            parts[name] = part.model_type
    entry = {
        "model": type(model).__name__,
        "blocks": blocks,
        "parts": parts,
        "tied": is_tied(model),
        "experts": experts(model),
        "tensor": tensor_plan(model, blocks),
    }
    return {name: value for name, value in entry.items() if value}


# ---- what is in a model ------------------------------------------------------------------------------


def listed(model: Any) -> Iterator[tuple[str, Any]]:
    """The elements of lists and sequences of modules, with their paths."""
    nn = importlib.import_module("torch.nn")
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            yield from ((f"{path}.{name}", child) for name, child in module.named_children())


def size(module: Any) -> int:
    """The number of parameters."""
    return sum(param.numel() for param in module.parameters())


def shares(module: Any, places: dict[int, list[str]], path: str) -> bool:
    """Whether a parameter of the module is used outside it, too."""
    return any(
        not place.startswith(f"{path}.") for param in module.parameters() for place in places[id(param)]
    )


def block_classes(model: Any) -> list[str]:
    """The classes of the repeated layers, none of which contains another.

    Those that transformers itself keeps on one device, as far as they are elements of a list; where there are none,
    those of the longest list by parameters. Layers without parameters or with tied ones are left out.
    """
    places: dict[int, list[str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        places.setdefault(id(param), []).append(name)
    layers = [(path, module) for path, module in listed(model) if size(module)]
    tied = {type(module).__name__ for path, module in layers if shares(module, places, path)}
    whole = set(model._no_split_modules or ()) - tied
    found = {type(module).__name__ for _, module in layers} & whole
    if not found:
        found = largest_list(layers) - tied
    outer = [(path, module) for path, module in model.named_modules() if type(module).__name__ in found]
    inner = {type(below).__name__ for _, module in outer for below in module.modules() if below is not module}
    return sorted(found - inner)


def largest_list(layers: list[tuple[str, Any]]) -> set[str]:
    """The classes of the elements of the list that has the most parameters."""
    lists: dict[str, list[Any]] = {}
    for path, module in layers:
        lists.setdefault(path.rpartition(".")[0], []).append(module)
    largest = max(lists.values(), key=lambda modules: sum(map(size, modules)), default=[])
    return {type(module).__name__ for module in largest}


def is_tied(model: Any) -> bool:
    """Whether input and output embeddings are one parameter."""
    try:
        ends = model.get_input_embeddings(), model.get_output_embeddings()
    except NotImplementedError:  # it has no embeddings
        return False
    weights = [getattr(module, "weight", None) for module in ends]
    return weights[0] is not None and weights[0] is weights[1]


def experts(model: Any) -> str | None:
    """Whether experts are modules of a list ("listed"), or lie together in a parameter ("stacked")."""
    nn = importlib.import_module("torch.nn")
    kinds = set()
    for path, module in model.named_modules():
        if path.rpartition(".")[2] == "experts":
            many = isinstance(module, nn.ModuleList | nn.ModuleDict)
            kinds.add("listed" if many else "stacked")
    return min(kinds, default=None)


def tensor_plan(model: Any, blocks: list[str]) -> dict[str, dict[str, str]] | None:
    """The styles of tensor parallelism by module: below a block ("block"), and below the model ("root").

    None where transformers has no plan, or where there are several kinds of blocks.
    """
    plan = dict(getattr(model, "_tp_plan", None) or {})
    if len(blocks) != 1:
        return None
    prefixes = {
        ".".join("*" if step.isdigit() else step for step in path.split(".")) + "."
        for path, module in model.named_modules()
        if type(module).__name__ == blocks[0]
    }
    block, root = {}, {}
    for path, style in plan.items():
        prefix = next((prefix for prefix in prefixes if path.startswith(prefix)), None)
        if prefix is None:
            root[path] = style
        else:
            block[path.removeprefix(prefix)] = style
    return {"block": block, "root": root} if block and len(prefixes) == 1 else None


# ---- the file ----------------------------------------------------------------------------------------


def split(entries: dict[str, Entry]) -> dict[str, Entry]:
    """The entries, with the blocks of a model's parts left to the entries of those."""
    done = {}
    for model_type, entry in entries.items():
        own = set(entry.get("blocks", ()))
        parts = {
            name: part
            for name, part in entry.get("parts", {}).items()
            if part != model_type
            and own.issuperset(blocks := entries.get(part, {}).get("blocks", ()))
            and blocks
        }
        for part in parts.values():
            own -= set(entries[part]["blocks"])
        done[model_type] = {
            name: value for name, value in {**entry, "blocks": sorted(own), "parts": parts}.items() if value
        }
    return {name: entry for name, entry in done.items() if "blocks" in entry or "parts" in entry}


def text_of(entries: dict[str, Entry]) -> str:
    """JSON with one line for each plan of tensor parallelism, and one for each model."""
    plans: list[str] = []
    lines = []
    for name, entry in entries.items():
        if "tensor" in entry:
            plan = json.dumps(entry["tensor"])
            if plan not in plans:
                plans.append(plan)
            entry = {**entry, "tensor": plans.index(plan)}
        lines.append(f'  "{name}": {json.dumps(entry)}')
    version = json.dumps(importlib.import_module("transformers").__version__)
    models, tensor = ",\n".join(lines), ",\n".join(f"  {plan}" for plan in plans)
    return f'{{"transformers": {version},\n"tensor": [\n{tensor}\n],\n"models": {{\n{models}\n}}}}\n'


if __name__ == "__main__":
    sys.exit(main())
