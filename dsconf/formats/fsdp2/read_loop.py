"""One optimizer step: how many micro batches it takes, and what becomes of the gradients."""

from __future__ import annotations

import math

import libcst as cst

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_values import (
    Attr,
    Choice,
    Instance,
    Known,
    Made,
    Op,
    Opaque,
    Ref,
    Value,
    called,
    plain,
    torch_name,
)
from dsconf.plan import Batch, Clipping, Unresolved

_STEPS = "gradient accumulation"
_FIELD = "batch.accumulation"
_CLIP = "clip_grad_norm_"


def read_batch(notes: Notes, steps: list[Event]) -> Batch:
    """The sizes of batches; `steps` are the calls of the optimizer's step."""
    accumulation = _accumulation(notes, steps)
    return Batch(micro=_micro(notes), accumulation=accumulation)


def sized(batch: Batch, ranks: int | None, tensor: int) -> Batch:
    """The sizes on a number of GPUs, where groups of `tensor` see the same data; None: any number."""
    if ranks is None or ranks % tensor:
        return batch
    world, total = ranks // tensor, None
    if isinstance(batch.micro, int) and isinstance(batch.accumulation, int):
        total = batch.micro * batch.accumulation * world
    return batch.model_copy(update={"world_size": world, "total": total})


def _micro(notes: Notes) -> int | Unresolved | None:
    loaders = [event.made for event in notes.of_torch("DataLoader")]
    key = "DataLoader.batch_size"
    values = [(made.argument("batch_size", 1), made) for made in loaders]
    sizes = [plain(value) for value, _ in values if value is not None]
    value, made = next(((value, made) for value, made in values if value is not None), (None, None))
    if value is None or made is None:
        return None
    if any(size != sizes[0] for size in sizes):
        note = f"several DataLoaders with different sizes; the one at {notes.place(made.node)} is taken"
        notes.remark(key, "needs-value", note)
    size = plain(value)
    if isinstance(size, int) and not isinstance(size, bool):
        notes.take(key, "batch.micro", size)
        return size
    found: int | Unresolved = notes.open(key, "batch.micro", value, made.node, int)
    return found


# ---- micro batches --------------------------------------------------------------------------------------


def _accumulation(notes: Notes, steps: list[Event]) -> int | Unresolved | None:
    backwards = [
        event
        for event in notes.methods("backward")
        if isinstance(event.made.function, Attr) and not event.made.keywords.get("retain_graph")
    ]
    divided = [
        (event, *_divisor(event.made.function.base))
        for event in backwards
        if isinstance(event.made.function, Attr)
    ]
    for event, divisor, node in divided:
        if divisor is not None:
            return _count(notes, divisor, node or event.made.node)
    every = next((found for event in steps if (found := _every(event)) is not None), None)
    if every is not None:
        count = _count(notes, *every)
        node = backwards[0].made.node if backwards else None
        note = "the loss is not divided by it: gradients of micro batches add up, where the target has their mean"
        notes.remark(next(reversed(notes.fields)), "approximate", f"{notes.place(node)}: {note}")
        return count
    if not backwards or not steps:
        return None
    backward, step = backwards[0], steps[0]
    shared = {id(condition.test) for condition in backward.conditions}
    when = [
        each.test for each in step.conditions if id(each.test) not in shared and not _asks_finite(each.test)
    ]
    if len(backward.loops) > len(step.loops) or when:
        only = f", where `{notes.text(when[0])}`" if when else ""
        note = (
            f"a step is taken for a number of micro batches that is known in a run only{only}; the loss is not divided "
            "by it, so that gradients add up, where the target has their mean"
        )
        action = "with one micro batch per step there is no difference"
        key, node = f"{_STEPS} (loss)", backward.made.node
        notes.say(key, None, "needs-value", note, node=node, action=action, written=False)
        return None
    return 1


def _count(notes: Notes, divisor: Value, node: cst.CSTNode | None) -> int | Unresolved:
    key = _name(notes, divisor, node)
    count = plain(divisor)
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        notes.take(key, _FIELD, count)
        return count
    found: int | Unresolved = notes.open(key, _FIELD, divisor, node, int)
    return found


def _name(notes: Notes, divisor: Value, node: cst.CSTNode | None) -> str:
    """What the code calls the number of micro batches."""
    if isinstance(divisor, Opaque | Attr | Op | Made):
        return notes.text(divisor)
    match node:
        case cst.BinaryOperation(right=right):
            text = notes.run.text(right)
        case cst.AugAssign(value=right):
            text = notes.run.text(right)
        case cst.Call(args=[first, *_]):
            text = notes.run.text(first.value)
        case _:
            return _STEPS
    return text if text.replace(".", "").replace("_", "").isalnum() and not text[:1].isdigit() else _STEPS


def _divisor(loss: Value) -> tuple[Value | None, cst.CSTNode | None]:
    """The number that a loss is divided by before its backward pass; a count of tokens or ranks is none."""
    divisor: Value | None = None
    match loss:
        case Made(function=Attr(name="scale"), args=(inner,)):
            return _divisor(inner)
        case Made(function=Attr(base=inner, name="div" | "div_"), args=(divisor, *_), node=node):
            pass
        case Made(function=Ref() as function, args=(inner, divisor, *_), node=node) if torch_name(
            function
        ) in ("div", "divide"):
            pass
        case Made(function=Attr(base=inner, name="mean" | "sum" | "float" | "to" | "requires_grad_")):
            return _divisor(inner)
        case Op(symbol="/", left=inner, right=divisor, node=node):
            pass
        case Op(symbol="*", left=left, right=right, node=node):
            return _factor(left, right, node) or _factor(right, left, node) or (None, None)
        case _:
            return None, None
    return (divisor, node) if _is_count(divisor) else _divisor(inner)


def _factor(loss: Value, factor: Value, node: cst.CSTNode) -> tuple[Value, cst.CSTNode] | None:
    """The number of whose inverse a loss is a multiple."""
    inverse = plain(factor)
    if isinstance(inverse, float) and 1e-9 < inverse < 1 and (1 / inverse) == round(1 / inverse):
        return Known(round(1 / inverse)), node
    if isinstance(factor, Op) and factor.symbol == "/" and plain(factor.left) in (1, 1.0):
        return factor.right, factor.node
    found, place = _divisor(loss) if isinstance(loss, Op | Made) else (None, None)
    return (found, place) if found is not None and place is not None else None


def _is_count(value: Value) -> bool:
    """Whether a value may be a number of micro batches: a setting, or the length of a list of them."""
    match value:
        case Known(value=count):
            return (
                isinstance(count, int | float) and math.isfinite(count) and count >= 1 and count == int(count)
            )
        case Made(function=Ref(name="len" | "max" | "int")) | Opaque() | Attr():
            return True
        case Op(symbol="//" | "/" | "*", left=left, right=right):
            return _is_count(left) and _is_count(right)
        case Choice(yes=yes, no=no):
            return _is_count(yes) and _is_count(no)
        case _:
            return False


def _every(step: Event) -> tuple[Value, cst.CSTNode] | None:
    """The number of micro batches after which a step is taken, where a test around it says it."""
    for condition in step.conditions:
        if condition.holds:
            found = _modulus(condition.test)
            if found is not None:
                return found
    return None


def _modulus(test: Value) -> tuple[Value, cst.CSTNode] | None:
    match test:
        case Op(symbol="==", left=Op(symbol="%", right=count, node=node)):
            return count, node
        case Op(symbol="and" | "or", left=left, right=right):
            return _modulus(left) or _modulus(right)
        case Op(symbol="not", left=Op(symbol="%", right=count, node=node)):
            return count, node
        case _:
            return None


# ---- gradients ------------------------------------------------------------------------------------------


def read_clipping(notes: Notes, steps: list[Event]) -> Clipping:
    """The largest norm of the gradient; `steps` are the calls of the optimizer's step."""
    for event in notes.of_torch("clip_grad_value_"):
        note = "each gradient is clipped by itself, which no target does"
        value = event.made.argument("clip_value", 1) or Known(None)
        notes.say("clip_grad_value_.clip_value", value, "unsupported", note, node=event.made.node)
    calls = [*notes.of_torch(_CLIP, "clip_grads_with_norm_"), *notes.methods(_CLIP)]
    if not calls:
        return Clipping(skips_not_finite=_skips(notes, steps))
    event, key = calls[0], f"{_CLIP}.max_norm"
    place = 0 if isinstance(event.made.function, Attr) else 1
    norm = event.made.argument("max_norm", place)
    skips = _skips(notes, steps)
    if norm is None:
        return Clipping(skips_not_finite=skips)
    kind = event.made.argument("norm_type", place + 1)
    if kind is not None and plain(kind) not in (2, 2.0):
        note = "the target clips by the 2-norm"
        notes.say(f"{_CLIP}.norm_type", kind, "unsupported", note, node=event.made.node)
    others = [each.made.argument("max_norm", place) for each in calls[1:]]
    if any(other is not None and plain(other) != plain(norm) for other in others):
        notes.remark(key, "approximate", f"several calls; that at {notes.place(event.made.node)} is taken")
    found = notes.number(key, "clipping.max_norm", norm, event.made.node)
    notes.conditional(key, event, "it is called", steps)
    if isinstance(found, Unresolved):
        return Clipping(max_norm=found, skips_not_finite=skips)
    norm_ = float(found) if math.isfinite(found) else None
    return Clipping(max_norm=norm_, skips_not_finite=skips)


def _skips(notes: Notes, steps: list[Event]) -> bool | None:
    """Whether a step is left out where the gradient is not finite; None where no step is seen."""
    by_scaler = any(
        event.made.args and isinstance(event.made.function, Attr) and called(event.made) == "step"
        for event in steps
    )
    checked = any(_asks_finite(condition.test) for step in steps for condition in step.conditions)
    key, field = "torch.isfinite", "clipping.skips_not_finite"
    if checked or by_scaler:
        notes.take("GradScaler.step" if by_scaler else key, field, True)
        return True
    if not steps:
        return None
    note = f"{notes.place(steps[0].made.node)}: no test of the gradients: a step is taken whatever they are"
    notes.default(key, field, False, note)
    return False


def _asks_finite(test: Value) -> bool:
    match test:
        case Made(function=function, args=args):
            if called(test) in ("isfinite", "isnan", "isinf"):
                return True
            inner = [*args, function.base] if isinstance(function, Attr) else args
            return any(_asks_finite(each) for each in inner)
        case Op(left=left, right=right) | Choice(yes=left, no=right):
            return _asks_finite(left) or _asks_finite(right)
        case _:
            return False


def optimizer_steps(notes: Notes, optimizers: list[Made]) -> list[Event]:
    """The calls of an optimizer's step: of one that is built in the file, by a scaler, or by the usual names."""
    return [event for event in notes.methods("step") if _steps(notes, event.made, optimizers)]


def _steps(notes: Notes, made: Made, optimizers: list[Made]) -> bool:
    if not isinstance(made.function, Attr):
        return False
    base = made.function.base
    if any(base is each for each in optimizers):
        return True
    if made.args and (isinstance(base, Made) and called(base) in ("GradScaler", "ShardedGradScaler")):
        return True
    name = notes.text(base).rpartition(".")[2].lower()
    return isinstance(base, Opaque | Attr | Instance) and (
        name.startswith("optim") or name in ("opt", "scaler")
    )
