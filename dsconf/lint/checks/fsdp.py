"""FSDP settings that a condition can't judge: keys of FSDP1, layer classes, what a whole checkpoint takes."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.context import Model
from dsconf.config.effective import Config, Facts
from dsconf.lint.event import Event, Needs
from dsconf.lint.nearest import nearest

_FSDP1 = (
    "use_orig_params",
    "sync_module_states",
    "forward_prefetch",
    "backward_prefetch",
    "limit_all_gathers",
)
_CLASSES = "fsdp_config.transformer_layer_cls_to_wrap"
_GIB = 2**30


def fsdp1_only_key(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Keys of FSDP1 beside version 2."""
    if facts.value("fsdp_version") != 2:
        return
    # A strategy alone is meant for something, of which FS102 says what it would be.
    beside = config.format == "accelerate" and config.present("fsdp_config.reshard_after_forward")
    for name in (*_FSDP1, "sharding_strategy") if beside else _FSDP1:
        path = f"fsdp_config.{name}"
        entry = config.entry(path)
        if entry is not None and entry.node.kind != "null":
            yield Event("fsdp1-only-key", path, entry.span, {"name": entry.key, "key": name})


def wrap_class(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Layer classes in a form in which none is found, and those that the model does not have."""
    entry = config.entry(_CLASSES)
    if entry is None or facts.value("wrap_policy") != "TRANSFORMER_BASED_WRAP":
        return
    raw = entry.node.plain()
    listed = isinstance(raw, list)
    names = raw if isinstance(raw, list) else raw.split(",") if isinstance(raw, str) else []
    if not all(isinstance(name, str) for name in names):
        return
    stripped = [name.strip() for name in names]
    key: dict[str, object] = {
        "name": entry.key, "joined": ",".join(stripped), "certain": True, "suggestion": None, "model": None,
        "classes": None, "stripped": None,
    }  # fmt: skip
    if listed and config.format == "accelerate":
        yield Event("fsdp-wrap-class", _CLASSES, entry.span, key | {"problem": "list", "text": str(raw)})
    elif not listed and stripped != names:
        spaced = next(name for name in names if name != name.strip())
        found = {"problem": "space", "text": spaced, "stripped": spaced.strip()}
        yield Event("fsdp-wrap-class", _CLASSES, entry.span, key | found)
    model = config.context.model
    classes = _layers(model) if model else ()
    if model is None or not classes:
        return
    for name in stripped:
        if name not in classes:
            meant = nearest(name, classes)
            found = {
                "problem": "unknown",
                "text": name,
                "suggestion": meant,
                "certain": meant is not None,
                "model": model.architecture or model.model_type,
                "classes": " or ".join(classes),
            }
            yield Event("fsdp-wrap-class", _CLASSES, entry.span, key | found)


def _layers(model: Model) -> tuple[str, ...]:
    """The classes of the repeated layers of a model, as far as its type is known."""
    from dsconf.formats.transformers.architectures import architecture  # only with a model

    known = architecture(model.model_type, model.parts) if model.model_type else None
    return known.blocks if known else ()


def full_state_dict(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Whole-model checkpoints where parameters are offloaded."""
    if facts.value("fsdp_offload") is not True or facts.value("state_dict_type") != "FULL_STATE_DICT":
        return
    path = "fsdp_config.state_dict_type"
    entry = config.entry(path) or config.entry("fsdp_config")
    if entry is None:
        return
    model, host = config.context.model, config.context.host_memory
    parameters = model.parameters if model else None
    key = {
        "parameters": f"{parameters / 1e9:.2f} billion" if parameters else None,
        "weights": round(4 * parameters / _GIB, 1) if parameters else None,
        "moments": round(8 * parameters / _GIB, 1) if parameters else None,
        "too_large": bool(parameters and host and 12 * parameters > host * _GIB),
    }
    span = entry.span if entry.node.kind != "object" else entry.key_span
    yield Event("full-state-dict-with-offload", path, span, key)


CHECKS = {
    "fsdp1-only-key": fsdp1_only_key,
    "fsdp-wrap-class": wrap_class,
    "full-state-dict-with-offload": full_state_dict,
}
"""The checks that all formats with FSDP settings share."""
