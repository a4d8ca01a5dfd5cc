"""The walk over the key table: keys that a section does not have or has no more, wrong values, keys written twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dsconf.config.context import HUGGING_FACE
from dsconf.config.effective import Config, Facts, Written
from dsconf.config.tables import Spec, spec_at
from dsconf.document.node import UNKNOWN, Document, Span, Spelling
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS
from dsconf.formats.deepspeed.keys import NEWEST, came_with, load_keys
from dsconf.lint.checks.arguments import is_taken
from dsconf.lint.event import Event
from dsconf.lint.homes import home_of
from dsconf.lint.nearest import nearest
from dsconf.lint.wrong_value import wrong_value

_SCIENTIFIC = r"[-+]?[0-9][0-9_]*(\.[0-9]+)?[eE][-+]?[0-9]+"


def events(config: Config, facts: Facts) -> Iterator[Event]:
    """Every event of one file."""
    yield from _duplicates(config.document, config.format)
    live = _live(config)
    for item in config.written:
        if config.unread(item):
            continue
        if config.document.placeholders and _is_open(item.entry.key):
            continue
        if item.spec is None:
            raises = item.section.get("unknown") == "raises"
            if not item.section.get("open") and (raises or not _is_remark(item.entry.key)):
                yield _unknown(config, item)
        elif item.spec.get("status") == "removed":
            yield _removed(item)
        elif item is live.get(item.path):
            if is_taken(facts, item) is not False:
                yield from _wrong_value(config, facts, item)
            if item.spec.get("status") == "inert":
                yield from _inert(config, item)
            if (
                item.path != "bf16" or config.fills.get("bf16.enabled") is not False
            ):  # see alias-section-unread
                yield from _deprecated(item, live)
        elif not _says_nothing(config, item):
            yield _second_spelling(item, live[item.path])


def _live(config: Config) -> dict[str, Written]:
    """By path the entry that DeepSpeed reads: of two spellings the one that counts, if it says something."""
    found: dict[str, Written] = {}
    for item in config.written:
        if not _says_nothing(config, item) and (item.wins or item.path not in found):
            found[item.path] = item
    return found


def _says_nothing(config: Config, item: Written) -> bool:
    """Whether DeepSpeed passes over the key, and looks for another spelling of it."""
    if item.section.get("reader", "raw") == "raw":
        nullable = bool((item.spec or {}).get("nullable"))
        return nullable and item.entry.node.kind == "null" and not item.is_alias
    return _is_dropped(config, item)


def _is_dropped(config: Config, item: Written) -> bool:
    """Whether DeepSpeed drops the key for its value "auto"."""
    return item.entry.node.scalar == "auto" and config.drops_auto(item.path, item.section)


def _above(path: str) -> str:
    """The dotted path of the section that a key stands in, "" for the top level."""
    return path.rpartition(".")[0]


def _join(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _named(section: str) -> str:
    return f'"{section}"' if section else "the top level"


def _duplicates(document: Document, name: str) -> Iterator[Event]:
    for path, node in document.objects():
        if len(node.members()) == len(node.entries):
            continue
        first: dict[str, Span] = {}
        last: dict[str, object] = {}
        for entry in node.entries:
            value = entry.node.plain()
            if entry.key in first:
                place = ((first[entry.key], "first written here"),)
                key = {
                    "name": entry.key,
                    "value": value,
                    "section": ".".join(path),
                    "same": repr(value) == repr(last[entry.key]),  # 1 and 1.0 are not
                    "language": document.language,
                    "format": name,
                }
                yield Event("duplicate-key", ".".join((*path, entry.key)), entry.key_span, key, place)
            first.setdefault(entry.key, entry.key_span)
            last[entry.key] = value


def _is_open(name: str) -> bool:
    """Whether the name of a key is settled only when a template is filled in."""
    from dsconf.document.template import is_placeholder  # few files need it

    return is_placeholder(name)


def _is_remark(name: str) -> bool:
    """Whether a key is meant for readers: people write remarks as "_comment" or "//", editors want "$schema"."""
    return name.startswith(("_", "//", "#", "$")) or name.lower() in ("comment", "comments")


def _unknown(config: Config, item: Written) -> Event:
    section = _above(item.path)
    keys = item.section["keys"]
    own = config.format == "deepspeed"
    home = home_of(config.table, item.entry.key, section)
    meant = None if home else item.section.get("mistaken", {}).get(item.entry.key)
    if not own and f"{section}_{item.entry.key}" in keys:
        meant = f"{section}_{item.entry.key}"
    if not (home or meant):
        meant = nearest(item.entry.key, [name for name in keys if _is_current(keys, name)])
    instead = home or (_join(section, keys[meant].get("alias", meant)) if meant else None)
    default = spec_at(config.table, instead)[1].get("default") if instead else None
    if isinstance(default, list | dict) or (instead and config.present(instead)):
        default = None
    key = {
        "name": item.entry.key,
        "section": section,
        "section_name": _named(section),
        "value": item.entry.node.plain(),
        "raises": item.section.get("unknown") == "raises" and not _is_ignored_name(config, item),
        "known": item.section.get("unknown") != "depends",
        "format": config.format,
        "of_deepspeed": not own and item.entry.key in load_keys()["keys"],
        "since": came_with(item.path, config.context.deepspeed_version) if own else None,
        "target": config.context.deepspeed_version or NEWEST,
        "home": home,
        "home_name": _named(_above(home or "")),
        "suggestion": keys[meant].get("shown", meant) if meant else None,
        "default": default,
        "taken": bool(instead and config.present(instead)),
    }
    return Event("unknown-key", item.path, item.entry.key_span, key)


def _is_current(keys: Mapping[str, Spec], name: str) -> bool:
    spec = keys[keys[name].get("alias", name)]
    return spec.get("status") not in ("removed", "deprecated")


def _is_ignored_name(config: Config, item: Written) -> bool:
    """Whether even a strict section lets the key pass.

    Pydantic sections take a key `strict` themselves, and unless that is true they drop what is "auto".
    """
    pydantic = item.section.get("reader") == "pydantic"
    return _is_dropped(config, item) or (pydantic and item.entry.key == "strict")


def _removed(item: Written) -> Event:
    spec: Spec = item.spec or {}
    value = item.entry.node.plain()
    key = {
        "name": item.entry.key,
        "path": item.path,
        "value": value,
        "off": value in (None, False, {}) or (isinstance(value, dict) and value.get("enabled") is False),
        "replacement": spec.get("replacement"),
        "number": isinstance(value, int | float),
        "fails": spec.get("wrong_fails", "parse"),
    }
    return Event("removed-key", item.path, item.entry.key_span, key)


def _inert(config: Config, item: Written) -> Iterator[Event]:
    """A key that nothing reads, where it says something else than what happens without it."""
    value = config.value(item.path)
    if value is not UNKNOWN and value != (item.spec or {}).get("default"):
        key = {"name": item.entry.key, "path": item.path, "value": item.entry.node.plain()}
        yield Event("inert-key", item.path, item.entry.span, key)


def _wrong_value(config: Config, facts: Facts, item: Written) -> Iterator[Event]:
    spec, reader, raw = item.spec or {}, item.section.get("reader", "raw"), item.entry.node.plain()
    if raw is UNKNOWN or config.document.misread(item.entry.node):
        return  # of what HJSON misreads a rule of its own tells
    if item.entry.node.scalar == "auto" and config.context.consumer in HUGGING_FACE:
        return  # they replace it, or stop at it themselves
    strict = reader == "pydantic" and config.strict(item.path)
    found = wrong_value(spec, reader, raw, strict=strict)
    if found is not None and found["fails"] is None and spec.get("status") == "inert":
        return  # nothing reads it, whatever it says
    if found is not None:
        late = found["fails"] == "step" and item.path.startswith("optimizer.params.")
        built = facts.value("optimizer_class") if late else None
        if isinstance(built, str) and built.startswith("torch.optim.") and built in OPTIMIZER_ARGUMENTS:
            found["fails"] = "init"  # torch looks at its arguments at once
        written = _number_in_yaml(raw) if config.document.language == "yaml" else None
        if written is not None and config.document.placeholders:
            return  # what fills such a template in (Hydra) reads it as a number
        if written is not None and found["number"] is not None:
            found["number"] = written
        key = {
            "name": item.entry.key,
            "path": item.path,
            "section": item.path.partition(".")[0] if "." in item.path else "",
            "scientific": written,
            "read_as": "text" if isinstance(raw, str) else "a fraction",
            **found,
        }
        yield Event("wrong-value", item.path, item.entry.span, key, tuple(_asks_for_autos(config, item)))


def _number_in_yaml(raw: object) -> Spelling | None:
    """A number that YAML reads as text (5e8), or as a fraction (5.0e+8), as it has to be written there."""
    if isinstance(raw, str) and not re.fullmatch(_SCIENTIFIC, raw.strip()):
        return None
    if not isinstance(raw, str | float):
        return None
    number = float(raw)
    if number.is_integer():
        return Spelling(f"{number:.0f}")
    return None if isinstance(raw, float) else Spelling(_with_point(f"{number:e}"))


def _with_point(text: str) -> str:
    """A number with an exponent, with a point and without zeros at the end: 1.0e-05."""
    mantissa, _, exponent = text.partition("e")
    whole, _, rest = mantissa.partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}e{exponent}"


def _asks_for_autos(config: Config, item: Written) -> Iterator[tuple[Span, str]]:
    """What makes "auto" a value like others, where it is one."""
    strict = config.entry(_join(_above(item.path), "strict"))
    if strict is not None and item.entry.node.scalar == "auto" and config.strict(item.path):
        yield strict.span, 'with it DeepSpeed no longer drops "auto" in this section'


def _deprecated(item: Written, live: Mapping[str, Written]) -> Iterator[Event]:
    """Old keys, an old form of a key (`zero_optimization: true`), and old spellings (`bfloat16`)."""
    spec: Spec = item.spec or {}
    old_key = spec.get("status") == "deprecated"
    old_form = item.entry.node.kind == "boolean" and "object" in spec["type"] and "bool" in spec["type"]
    old_spelling = item.is_alias and item.section.get("reader", "raw") == "raw"
    if not (old_key or old_form or old_spelling):
        return
    replacement = spec.get("replacement") if old_key else item.path
    # DeepSpeed itself writes the old value into a new key of the same section, and refuses to overwrite it.
    beside = replacement and _above(replacement) == _above(item.path)
    new = live.get(replacement or "") if old_key and beside else None
    key = {
        "name": item.entry.key,
        "path": item.path,
        "value": item.entry.node.plain(),
        "replacement": replacement,
        "new_name": (new.entry.key if new else (replacement or "").rpartition(".")[2]),
    }
    if new is None:
        yield Event("deprecated-key", item.path, item.entry.key_span, key)
    else:
        place = ((new.entry.key_span, "the new key"),)
        yield Event("deprecated-and-new-key", item.path, item.entry.key_span, key, place)


def _second_spelling(item: Written, other: Written) -> Event:
    key = {
        "name": item.entry.key,
        "other": other.entry.key,
        "section": _above(item.path),
        "raises": item.section.get("unknown") == "raises",
        "same": item.entry.node.plain() == other.entry.node.plain(),
    }
    place = ((other.entry.key_span, "the other spelling"),)
    return Event("both-spellings", item.path, item.entry.key_span, key, place)
