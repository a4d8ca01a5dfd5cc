"""What is wrong with a value: its type, a word that is none of the allowed ones, a fraction, quotes, its size."""

from __future__ import annotations

import json
import re

from dsconf.config.coerce import Invalid, coerce, types_of
from dsconf.config.coerce import Node as Spec
from dsconf.config.dtypes import short_name
from dsconf.document.node import Spelling
from dsconf.lint.nearest import nearest

_FALSE = ("0", "f", "false", "n", "no", "none", "null", "off")
_TRUE = ("1", "on", "t", "true", "y", "yes")
_LARGEST = 2**63
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def wrong_value(spec: Spec, reader: str, raw: object, *, strict: bool = False) -> dict[str, object] | None:
    """What the rules for values read of a value that DeepSpeed refuses or takes for another one; None for a good one.

    `spec` is the key's node of the table, `reader` and `strict` as `coerce` takes them.
    """
    if reader == "raw" and raw == "auto" and spec.get("filled_by"):
        return None  # a placeholder, and not for DeepSpeed
    result = coerce(spec, reader, raw, strict=strict)
    if isinstance(result, Invalid):
        problem, fails, expected = _problem(spec, reader, raw), result.fails, result.expected
    elif reader == "raw" and types_of(spec) == ["bool"] and isinstance(raw, str) and raw:
        problem, fails, expected = "bool-text", None, "true or false"
    else:
        return None
    if problem == "bounds" and isinstance(raw, int | float) and not abs(raw) < _LARGEST:
        expected += " that 64 bits hold"
    text = raw.strip().lower() if isinstance(raw, str) else ""
    meant = _meant(spec, raw) if problem == "enum" else None
    return {
        "value": raw,
        "met": _met(raw),
        "expected": expected,
        "fails": fails,
        "problem": problem,
        "default": spec.get("default"),
        "means_false": text in _FALSE,
        "means_true": text in _TRUE,
        "meant": meant,
        "same_word": isinstance(raw, str) and raw.strip().lower() == (meant or "").lower(),
        "number": _spelling(raw) if problem == "quoted" else None,
        "whole": isinstance(raw, float) and raw == round(raw, 0),
        "nearest": _nearest_integer(spec, raw) if problem == "fraction" else None,
    }


def _problem(spec: Spec, reader: str, raw: object) -> str:
    types = types_of(spec)
    # A raw section reckons with false as with 0.
    number = isinstance(raw, int | float) and (reader == "raw" or not isinstance(raw, bool))
    if _quotes_are_wrong(spec, reader, raw):
        return "quoted"
    if types == ["bool"] and isinstance(raw, str):
        return "bool-text"
    if "int" in types and isinstance(raw, float):
        whole = int(raw) if abs(raw) < _LARGEST and raw == int(raw) else None
        if spec.get("int_only") or reader == "environment":
            # An integer may be written for a whole number, which may be out of bounds itself.
            outside = whole is not None and isinstance(coerce(spec, reader, whole), Invalid)
            outside = outside or raw - raw != 0
            return "bounds" if outside else "fraction"
        if reader != "raw" and whole is None and abs(raw) < _LARGEST:
            return "fraction"
    if "values" in spec and len(types) == 1 and (number or isinstance(raw, str)):
        return "enum"
    return "bounds" if number and {"int", "float"} & {*types} else "type"


def _quotes_are_wrong(spec: Spec, reader: str, raw: object) -> bool:
    """Whether a refused value is a number in quotes, and refused for them: the number itself may be wrong too."""
    number = _number(raw) if isinstance(raw, str) else None
    if number is None or not {"int", "float"} & {*types_of(spec)}:
        return False
    return "quoted_fails" in spec or not isinstance(coerce(spec, reader, number), Invalid)


def _number(text: str) -> float | None:
    """The finite number that a text holds, None where it holds none."""
    try:
        number = float(text)
        return int(text) if text.strip().lstrip("+-").isdigit() else number if number - number == 0 else None
    except (ValueError, OverflowError):
        return None


def _spelling(raw: object) -> Spelling | None:
    """A number in quotes as it would be written without them; None where JSON has no such number."""
    text = str(raw).strip()
    return Spelling(text) if re.fullmatch(_NUMBER, text) else None


def _met(raw: object) -> str:
    """A value in words."""
    if isinstance(raw, str):
        return f"the text {json.dumps(raw, ensure_ascii=False)}"
    if isinstance(raw, list):
        return f"the list {json.dumps(raw, ensure_ascii=False)}"
    return "an object" if isinstance(raw, dict) else json.dumps(raw)


def _meant(spec: Spec, raw: object) -> str | None:
    """The allowed word that another one most likely means."""
    if not isinstance(raw, str):
        return None
    words = {value.lower(): value for value in spec["values"] if isinstance(value, str)}
    text = raw.strip().lower()
    text = text if text in words else short_name(text)
    return words[text] if text in words else words.get(nearest(text, words) or "")


def _nearest_integer(spec: Spec, raw: object) -> int | None:
    """The integer that a fraction stands for; None where rounding would leave nothing of it."""
    assert isinstance(raw, float)
    whole = round(raw)
    lowest = spec.get("min", spec["exclusive_min"] + 1 if "exclusive_min" in spec else None)
    if lowest is not None:
        whole = max(whole, lowest)
    if "values" in spec and whole not in spec["values"]:
        return None
    return whole if whole or not raw else None
