"""What becomes of "auto": nobody fills it, the reader does not know the key, or the model does not say its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.context import CONSUMER_NAMES, HUGGING_FACE
from dsconf.config.effective import Config, Facts, Written
from dsconf.document.node import Node
from dsconf.lint.event import Event, Needs
from dsconf.lint.words import Words, show

_MOMENTS = {"parse": "when the file is read", "init": "in deepspeed.initialize", "step": "in the first step"}
_OWN_RATES = ("WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest")
"""Schedules that set a learning rate whatever the optimizer's is."""
_SIZES = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")


def without_resolver(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """ "auto" in a file that goes to DeepSpeed as it is: three events, one for each effect."""
    if config.context.consumer not in ("deepspeed", "lightning"):
        return
    crashes: dict[str, list[Written]] = {}
    precision: list[Written] = []
    dropped: list[Written] = []
    for item in config.written:
        effect = _effect(config, facts, item)
        if effect == "dropped" and item.path in ("fp16.enabled", "bf16.enabled"):
            (precision if facts.value("precision") == "fp32" else dropped).append(item)
        elif effect == "dropped":
            dropped.append(item)
        elif effect:
            crashes.setdefault(effect, []).append(item)
    stops = [
        f"{_listed([item.path for item in items])} {'stops' if len(items) == 1 else 'stop'} it {_MOMENTS[moment]}"
        for moment in _MOMENTS
        if (items := crashes.get(moment))
    ]
    if stops:
        first = next(moment for moment in _MOMENTS if moment in crashes)
        found = [item for moment in _MOMENTS for item in crashes.get(moment, ())]
        when = {item.path: _MOMENTS[moment] for moment, items in crashes.items() for item in items}
        yield _resolver_event(found, "crash", "; ".join(stops), first, when)
    if precision:
        yield _resolver_event(precision, "precision", _listed([item.path for item in precision]), "not")
    if dropped:
        serious = any(item.path == "zero_optimization.stage" for item in dropped)
        words = _listed([f"{item.path} {show(config.value(item.path))}" for item in dropped])
        yield _resolver_event(dropped, "stage" if serious else "default", words, "not")


def _resolver_event(
    items: list[Written], effect: str, words: str, fails: str, when: Mapping[str, str] | None = None
) -> Event:
    ordered = sorted(items, key=lambda item: item.entry.key_span)
    others = tuple((item.entry.span, (when or {}).get(item.path, "and here")) for item in ordered[1:])
    key = {"effect": effect, "words": Words(words), "fails": fails}
    return Event("auto-without-resolver", ordered[0].path, ordered[0].entry.span, key, others)


def _effect(config: Config, facts: Facts, item: Written) -> str | None:
    """When "auto" in a key stops DeepSpeed, "dropped" where it takes the default, None where it is no matter."""
    spec: Any = item.spec or {}
    if item.entry.node.scalar != "auto" or not spec or "auto" in spec.get("values", ()):
        return None
    if config.entry(item.path) is not item.entry or config.unread(item):
        return None
    if config.drops_auto(item.path, item.section):
        return "dropped"
    lightning = config.context.consumer == "lightning" and item.path == "gradient_accumulation_steps"
    if item.section.get("reader", "raw") != "raw" or "filled_by" not in spec or lightning:
        return None  # other rules say it
    if item.path.startswith("optimizer.params."):
        return _effect_on_optimizer(config, facts, item.path)
    result = coerce(spec, "raw", "auto")
    return result.fails if isinstance(result, Invalid) else None


def _effect_on_optimizer(config: Config, facts: Facts, path: str) -> str | None:
    """torch.optim looks at its arguments at once, DeepSpeed's optimizers in the first step.

    By then a schedule of DeepSpeed may have put a learning rate of its own.
    """
    if str(facts.value("optimizer_class")).startswith("torch.optim."):
        return "init"
    schedule = config.raw("scheduler.type")
    if path != "optimizer.params.lr" or schedule not in _OWN_RATES:
        return "step"
    if schedule == "WarmupLR" and config.raw("scheduler.params.warmup_max_lr") is None:
        return "init"  # it takes the optimizer's
    return None


def unsupported_key(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """ "auto" in a key that Trainer or Accelerate does not fill: every one that is left stops it."""
    context = config.context
    if not context.read_by(*HUGGING_FACE):
        return
    written = {item.entry.key_span: item for item in config.written}
    stack: list[tuple[str, Node]] = [("", config.document.root)]
    while stack:
        above, node = stack.pop()
        for entry in node.members().values():
            path = f"{above}.{entry.key}" if above else entry.key
            if entry.node.kind == "object":
                stack.append((path, entry.node))
            item = written.get(entry.key_span)
            fillers = ((item.spec if item else None) or {}).get("filled_by", {})
            if entry.node.scalar != "auto" or set(context.readers) & set(fillers):
                continue
            if context.consumer is None and not (item and config.drops_auto(path, item.section)):
                continue  # DeepSpeed itself refuses it: said without a guess
            names = " or ".join(CONSUMER_NAMES[reader] for reader in context.readers)
            key = {
                "path": path,
                "names": names,
                "known": context.consumer is not None,
                "guessed": Words(context.guessed),
                "canonical": item.path if item is not None and item.path != path else None,
            }
            yield Event("auto-unsupported-key", path, entry.span, key)


def needs_hidden_size(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Sizes that follow the hidden size of the model, and a model that has none."""
    context, document = config.context, config.document
    if context.consumer not in HUGGING_FACE:
        return
    paths = [("zero_optimization", name) for name in _SIZES]
    found = {
        path[-1]: entry for path in paths if (entry := document.entry(path)) and entry.node.scalar == "auto"
    }
    if not found:
        return
    if context.model is None:
        yield Needs("auto-needs-hidden-size", "model")
        return
    if context.model.hidden_size is not None:
        return
    from dsconf.formats.trainer.hidden import INSIDE, NONE  # only for models that don't say it

    kind, inside = context.model.model_type, context.model.text_hidden_size is not None
    stage = config.value("zero_optimization.stage")
    # Accelerate does not look into text_config, and fills what Trainer leaves to it below stage 3.
    left = [name for name in found if context.consumer == "accelerate" or not inside or name != _SIZES[0]]
    if inside and (not left or (context.consumer == "trainer" and stage not in (0, 1, 2))):
        return
    if kind not in (INSIDE if inside else NONE):
        return
    first = found[left[0]]
    key = {
        "names": Words(_listed([f"zero_optimization.{name}" for name in left])),
        "kind": kind,
        "inside": inside,
        "reader": CONSUMER_NAMES[context.consumer],
        "stage": stage,
    }
    others = tuple((found[name].span, "and here") for name in left[1:])
    yield Event("auto-needs-hidden-size", f"zero_optimization.{left[0]}", first.span, key, others)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
