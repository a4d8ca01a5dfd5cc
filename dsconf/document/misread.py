"""Text without quotes goes on to the end of its line in HJSON: where that was hardly meant, and what was."""

from __future__ import annotations

import json
import re

from dsconf.document.tokens import WORDS, short

OTHER_QUOTES = "'`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_REMARK = re.compile(r"[ \t]+(?:#|//|/\*).*$")
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][+-]?[0-9]*)?|0[xX][0-9a-fA-F]+")
_MORE = re.compile(r'"\s*:|,\s*"')
_GLUED = "text without quotes goes on to the end of its line"
_LONGEST = 1000
"""Characters of a text that anybody writes without quotes."""
_KEY = re.compile(r"[\w\"']+[ \t]*:(?:\s|$)")


def odd_word(word: str) -> str | None:
    """What is wrong with a word where JSON wants a value, if that can be told from the word alone."""
    if word in PYTHON_WORDS:
        return f"{word} is Python: JSON writes {PYTHON_WORDS[word]}"
    if word in _CONSTANTS or word[:1].isdigit() or word[:1] in "+-.":
        return f"{short(word)} is no JSON number"
    if word[:1] in OTHER_QUOTES:
        return other_quotes(word[0])
    return None


def other_quotes(quote: str) -> str:
    """What is wrong with a string in other quotes."""
    return f'JSON puts strings in double quotes ("), not in {quote}'


def judge(text: str, *, below: bool) -> tuple[str | None, str] | None:
    """What a text without quotes was meant to be (as JSON, None where that is open) and why it is not read so.

    None where HJSON reads what was meant. `below`: it stands on another line than its key.
    """
    core = _without_end(text)
    if text and text[0] in OTHER_QUOTES:
        return json.dumps(core.strip(OTHER_QUOTES), ensure_ascii=False), other_quotes(text[0])
    if core in PYTHON_WORDS:
        return PYTHON_WORDS[core], f"{core} is Python: JSON writes {PYTHON_WORDS[core]}"
    if _NUMBER.fullmatch(core) or core in _CONSTANTS:
        return _number(core), f"{short(core)} is no JSON number"
    if below and _KEY.match(text):
        return None, "the value is missing, and HJSON takes the next line for it"
    if core != text or _MORE.search(text):
        plain = not _MORE.search(core)
        meant = (core if core in WORDS else json.dumps(core, ensure_ascii=False)) if plain else None
        return meant, _GLUED
    return None


def _number(core: str) -> str | None:
    """The number that Python reads, as JSON."""
    plain = core.replace("_", "")
    try:
        return str(int(plain, 0 if plain[:2] in ("0x", "0X") else 10))
    except ValueError:
        pass
    try:
        return json.dumps(float(plain)) if core not in _CONSTANTS else None
    except ValueError:
        return None


def _without_end(text: str) -> str:
    """The text without what closes a value: a comma, brackets that it does not open, a comment."""
    text = _REMARK.sub("", text[:_LONGEST])
    while text[-1:] in ("}", "]", ",", " ", "\t"):
        last = text[-1]
        opens = {"}": "{", "]": "["}.get(last)
        if opens is not None and text.count(opens) >= text.count(last):
            break
        text = text[:-1]
    return text
