"""The dtypes of a step: the policy of fully_shard, how the model was loaded, autocast, and the gradient scaler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dsconf.formats.fsdp2.read_dtypes import dtype_of, given_dtype
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_units import Unit, is_built_here, path_of, setting
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Attr,
    Choice,
    Known,
    Made,
    Ref,
    Value,
    called,
    choices,
    is_parameters,
    plain,
    torch_name,
)
from dsconf.plan import Dtype, LossScaling, Precision, Sharding, Unresolved

_POLICY = "MixedPrecisionPolicy"
_LOADERS = ("from_pretrained", "from_config")
_SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")


class _Weights(NamedTuple):
    """The dtype of the parameters as they are sharded."""

    dtype: Dtype
    rounded: bool
    """Whether they had fewer bits before."""
    said: bool
    """Whether the code says it; else it is PyTorch's default."""


def read_precision(notes: Notes, units: Sequence[Unit], sharding: Sharding, last: bool) -> Precision:
    """All dtypes; `last` says whether gradients are reduced on the last micro batch only."""
    weights = _weights(notes, units)
    compute, reduce, casts = _policy(notes, units)
    if compute is None:
        compute = weights.dtype
    if not weights.said:
        _default_weights(notes, units, compute)
    if reduce == compute:
        reduce = None
    whole = last or sharding.partition == "nothing"
    accumulate: Any = (reduce or compute) if whole else weights.dtype
    if accumulate == compute or isinstance(accumulate, Unresolved):
        accumulate = None
    precision = {
        "compute": compute,
        "reduce": reduce,
        "accumulate": accumulate,
        "masters": weights.dtype,
        "units_cast": "all" if casts and compute != "fp32" else "none",
        "autocast": _autocast(notes),
        "scaling": _scaling(notes),
    }
    if compute != "fp32" and weights.dtype == "fp32":
        precision["rounded_masters"] = weights.rounded
    return Precision.model_validate(precision)


# ---- the policy -----------------------------------------------------------------------------------------


def _policy(notes: Notes, units: Sequence[Unit]) -> tuple[Any, Dtype | None, bool]:
    """The dtype of parameters (None: as they are), that of the reduction, and whether inputs are cast."""
    value, made = setting(units, "mp_policy", notes)
    key = "fully_shard.mp_policy"
    policies = [each for each in choices(value) if plain(each) is not None]
    if not policies:
        return None, None, False
    first = policies[0]
    known = isinstance(first, Made) and torch_name(first.function) == _POLICY
    if isinstance(value, Choice) or not known or not isinstance(first, Made):
        seen = value if value is not None else first
        given = given_dtype(notes.given.get(key))
        if given is not None:
            notes.instead(key, "precision.compute", str)
            return given, None, False
        node = made.node if made is not None else None
        action = f"write it out, or say the dtype of parameters with --set {key}=bf16"
        note = f"fully_shard is called with a computed policy, `{notes.text(seen)}`"
        notes.say(key, seen, "needs-value", note, node=node, action=action)
        return Unresolved(key=key), None, False
    _roots_differ(notes, units, value)
    compute: Any = _dtype(notes, first, "param_dtype", 0, "precision.compute")
    reduce: Any = _dtype(notes, first, "reduce_dtype", 1, "precision.reduce")
    if isinstance(reduce, Unresolved):
        notes.say(
            f"{_POLICY}.reduce_dtype",
            first.argument("reduce_dtype", 1) or Known(None),
            "needs-value",
            "it is known in a run only: that of param_dtype is assumed",
            node=first.node,
        )
        reduce = None
    _output(notes, first)
    return compute, reduce, _casts(notes, first, compute)


def _roots_differ(notes: Notes, units: Sequence[Unit], policy: Value | None) -> None:
    for unit in units:
        other = unit.made.argument("mp_policy")
        names = [plain_dtypes(each) for each in (policy, other)]
        if unit.kind in ("root", "end", "part") and names[0] != names[1]:
            whose = "the root" if unit.kind == "root" else "other modules"
            note = f"{notes.text(other)} for {whose}: that of the blocks is taken"
            notes.say(
                f"fully_shard.mp_policy ({unit.kind})",
                other or "none",
                "approximate",
                note,
                node=unit.made.node,
            )


def plain_dtypes(policy: Value | None) -> list[Dtype | None]:
    """The dtypes of parameters and of the reduction."""
    if not isinstance(policy, Made):
        return [None, None]
    return [dtype_of(policy.argument("param_dtype", 0)), dtype_of(policy.argument("reduce_dtype", 1))]


def _dtype(notes: Notes, policy: Made, name: str, position: int, field: str) -> Any:
    value = policy.argument(name, position)
    key = f"{_POLICY}.{name}"
    given = given_dtype(notes.given.get(key))
    if given is not None:
        notes.instead(key, field, str)
        return given
    if value is None:
        return Unresolved(key=key) if policy.open is not None else None
    if plain(value) is None:
        notes.take(key, field, None)
        return None
    found = {dtype_of(each) for each in choices(value)}
    dtype = next(iter(found)) if len(found) == 1 else None
    if dtype is None:
        return notes.left_open(key, field, value, policy.node)
    notes.take(key, field, value)
    return dtype


def _output(notes: Notes, policy: Made) -> None:
    output = policy.argument("output_dtype", 2)
    if output is not None and plain(output) is not None:
        note = "the outputs of the units are cast to it"
        action = "cast the outputs of the model in your script"
        notes.say(f"{_POLICY}.output_dtype", output, "approximate", note, node=policy.node, action=action)


def _casts(notes: Notes, policy: Made, compute: object) -> bool:
    value = policy.argument("cast_forward_inputs", 3)
    key, field = f"{_POLICY}.cast_forward_inputs", "precision.units_cast"
    casts = True if value is None else plain(value)
    if casts is UNKNOWN and value is not None:
        note = "it is known in a run only: True is assumed"
        notes.say(key, value, "needs-value", note, node=policy.node)
        return compute is not None
    if compute in (None, "fp32") or not casts:
        if value is not None:
            notes.take(key, field, bool(casts))
        return False
    if value is None:
        notes.default(key, field, True, "PyTorch's default")
    else:
        notes.take(key, field, True)
    return True


# ---- how the model was loaded ---------------------------------------------------------------------------


def _weights(notes: Notes, units: Sequence[Unit]) -> _Weights:
    targets = [unit.made.argument("module", 0) for unit in units if unit.kind == "root"]
    paths = {path_of(target) for target in targets if target is not None}
    dtype: Dtype = "fp32"
    rounded = False
    seen = False
    for event, cast, keeps in _casts_of_weights(notes, paths):
        if cast is None:
            note = (
                f"the dtype of the model, `{notes.text(event.made)}`, is known in a run only: fp32 is assumed"
            )
            notes.say("model dtype", event.made, "needs-value", note, node=event.made.node)
            continue
        seen = True
        rounded |= cast != "fp32"
        if not keeps:
            dtype = cast
        if not keeps and cast != "fp32":
            key = _cast_key(event.made)
            notes.take(key, "precision.masters", {"bf16": "torch.bfloat16"}.get(cast, cast))
            notes.labels["precision.compute"] = key
    return _Weights(dtype, rounded and dtype == "fp32", seen)


def _default_weights(notes: Notes, units: Sequence[Unit], compute: object) -> None:
    """What is said of a model whose dtype no code says."""
    roots = [unit.made.argument("module", 0) for unit in units if unit.kind == "root"]
    built_here = bool(roots) and all(root is not None and is_built_here(root) for root in roots)
    if built_here or compute == "fp32":  # which casts nothing, here and in what is written
        note = "PyTorch's default; a model that is loaded in 16 bits is trained in them"
        notes.say("model dtype", "torch.float32", "exact", note, written=False)
    else:
        note = "PyTorch's default is assumed: the dtype in which the model is loaded is known in a run only"
        notes.say("model dtype", "torch.float32", "needs-value", note, written=False)


def _cast_key(made: Made) -> str:
    name = called(made)
    if name.startswith("from_"):
        return f"{name}.{'torch_dtype' if 'torch_dtype' in made.keywords else 'dtype'}"
    return {"setattr": "param.data", "set_default_dtype": name}.get(name, f"model.{name}")


def _casts_of_weights(notes: Notes, paths: set[Any]) -> Iterator[tuple[Event, Dtype | None, bool]]:
    """What casts the parameters, in order: the dtype (None: not known), and whether it only rounds them."""
    for event in notes.run.events:
        made = event.made
        match made:
            case Made(function=Attr(base=base, name="to" | "bfloat16" | "half" | "float" as name)):
                if path_of(base) in paths:
                    given = _cast_to(name, made)
                    if given is not None:
                        yield event, given, False
            case Made(function=Attr(base=base, name="copy_"), args=(source, *_)):
                given = _converted(source)
                if given is not None and is_parameters(_of_data(base)) is not None:
                    yield event, given, True
            case Made(function=Ref(name="setattr"), args=(owner, Known(value="data"), source)):
                given = _converted(source)
                if given is not None and is_parameters(owner) is not None:
                    yield event, given, False
            case Made() if called(made) in _LOADERS and path_of(made) in paths:
                asked = made.argument("torch_dtype") or made.argument("dtype")
                if asked is not None or called(made) == "from_pretrained":
                    yield event, dtype_of(asked), False
            case Made() if torch_name(made.function) == "set_default_dtype":
                yield event, dtype_of(made.argument("d", 0)), False
            case _:
                pass


def _cast_to(name: str, made: Made) -> Dtype | None:
    names: dict[str, Dtype] = {"bfloat16": "bf16", "half": "fp16", "float": "fp32"}
    if name != "to":
        return names[name]
    found = [dtype_of(value) for value in (*made.args, *made.keywords.values())]
    return next((dtype for dtype in found if dtype is not None), None)


def _of_data(value: Value) -> Value:
    return value.base if isinstance(value, Attr) and value.name == "data" else value


def _converted(source: Value) -> Dtype | None:
    """The dtype that a tensor is converted to last."""
    match source:
        case Made(function=Attr(name="to" | "bfloat16" | "half" | "float" as name)):
            return _cast_to(name, source)
        case _:
            return None


# ---- autocast and the scaler ----------------------------------------------------------------------------


def _autocast(notes: Notes) -> Dtype | None:
    for event in notes.run.events:
        names = [{_made_by(each) for each in choices(context)} for context in event.contexts]
        if any(each & {"no_grad", "inference_mode"} for each in names):
            continue
        for context, of in zip(event.contexts, names, strict=True):
            if "autocast" not in of:
                continue
            if isinstance(context, Made):
                return _autocast_dtype(notes, context)
            note = f"`{notes.text(context)}`: whether it is on is known in a run only: it is taken as off"
            notes.say("torch.autocast", context, "needs-value", note, node=event.made.node)
            return None
    return None


def _made_by(value: Value) -> str:
    return torch_name(value.function) if isinstance(value, Made) else ""


def _autocast_dtype(notes: Notes, context: Made) -> Dtype | None:
    old = isinstance(context.function, Ref) and ".cuda." in context.function.name
    enabled = context.argument("enabled", 0 if old else 2)
    device = plain(context.argument("device_type", None if old else 0))
    dtype, key = context.argument("dtype", 1), "torch.autocast.dtype"
    if enabled is not None and plain(enabled) is not True:
        if plain(enabled) is UNKNOWN:
            note = f"whether it is on, `{notes.text(enabled)}`, is known in a run only: it is taken as off"
            notes.say("torch.autocast.enabled", enabled, "needs-value", note, node=context.node)
        return None
    if dtype is None or plain(dtype) is None:
        found: Dtype = "bf16" if device == "cpu" else "fp16"
        notes.default(
            key,
            "precision.autocast",
            f"torch.{'bfloat16' if device == 'cpu' else 'float16'}",
            "PyTorch's default",
        )
        return found
    known = dtype_of(dtype)
    if known is None:
        note = f"`{notes.text(dtype)}` is known in a run only: no autocast is taken"
        notes.say(key, dtype, "needs-value", note, node=context.node)
        return None
    notes.take(key, "precision.autocast", dtype)
    return known if known != "fp32" else None


def _scaling(notes: Notes) -> LossScaling | None:
    found = next(notes.of_torch("GradScaler", "ShardedGradScaler"), None)
    if found is None:
        return None
    made = found.made
    # The older class of torch.cuda has no device before the other arguments.
    shift = 0 if isinstance(made.function, Ref) and ".cuda." in made.function.name else 1
    given: dict[str, Any] = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5}
    given |= {"growth_interval": 2000, "enabled": True}
    fields = {"init_scale": "precision.scaling.scale", "growth_interval": "precision.scaling.window"}
    for place, name in enumerate(_SCALER):
        value = made.argument(name, place + shift)
        key = f"GradScaler.{name}"
        if value is None:
            if name in fields:
                notes.default(key, fields[name], given[name], "PyTorch's default")
            continue
        known = plain(value)
        if known is UNKNOWN:
            note = f"`{notes.text(value)}` is known in a run only: PyTorch's default {given[name]} is assumed"
            notes.say(key, value, "needs-value", note, node=made.node)
            continue
        given[name] = known
        if name in fields:
            notes.take(key, fields[name], value)
        elif name == "enabled":
            notes.say(key, value, "no-effect", "it is on" if known else "it is off: the loss is not scaled")
        elif known != {"growth_factor": 2.0, "backoff_factor": 0.5}[name]:
            note = "the target doubles and halves the scale"
            notes.say(key, value, "approximate", note, node=made.node)
        else:
            notes.say(key, value, "exact", "the target doubles and halves the scale, too")
    if not given["enabled"]:
        return None
    notes.take("GradScaler", "precision.scaling", True)
    note = "torch's scale has no smallest value, and grows a step earlier than DeepSpeed's"
    notes.remark("GradScaler", "approximate", note)
    try:
        scale, window = float(given["init_scale"]), int(given["growth_interval"])
    except (TypeError, ValueError, OverflowError):
        return None
    return LossScaling(scale=scale, window=window, hysteresis=1, refill=False, minimum=1.0)
