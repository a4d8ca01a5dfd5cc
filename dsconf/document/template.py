"""Placeholders of templates: what a script or a template engine fills in before anybody reads the file as JSON."""

from __future__ import annotations

import re

_VARIABLE = r"\$\{[^{}\n]*\}|\$\([^()\n]*\)|\$[A-Za-z_]\w*|%\(\w+\)[a-z]"
_JINJA = r"\{\{[-+~]?\s*[A-Za-z_][^{}\n]*\}\}"
_MARKED = r"<[A-Za-z_][\w .-]*>|__[A-Za-z](?:\w*?[A-Za-z0-9])?__|@[A-Za-z_]\w*@"
_SIGN = rf"(?>{_VARIABLE}|{_JINJA}|{_MARKED})"
_END = r"(?=[ \t]*(?:[,\]}#\r\n]|//|/\*|\Z))"
_FILLED = rf"[\w.+-]{{0,40}}{_SIGN}(?:[\w.+/~-]|{_SIGN})*+"
_BARE = re.compile(_FILLED + _END, re.ASCII)
_KEY = re.compile(rf"{_FILLED}(?=[\s:,}}]|\Z)", re.ASCII)
_NAME = re.compile(rf"[A-Z](?:[A-Z0-9]*_[A-Z0-9_]+|[A-Z]+[0-9]*|\w*_[A-Z]{{2}}\w*){_END}")
_INSIDE = re.compile(rf"{_VARIABLE}|{_JINJA}|\{{%.{{0,200}}?%\}}")
_WHOLE = re.compile(_MARKED)
_TAG = re.compile(r"\{%[-+]?\s*(\w+).*?%\}", re.DOTALL)
_OPENING = ("if", "for", "block", "with", "macro", "filter", "call", "raw")
_WORDS = re.compile(
    "TRUE|FALSE|NULL|NONE|NAN|INF|INFINITY|AUTO|YES|NO|ON|OFF|CPU|GPU|NVME|CUDA|B?FLOAT[0-9]*|B?FP[0-9]+|BF16|INT[0-9]+"
    "|HALF|ADAMW?|ADAGRAD|LAMB|LION|SGD|MUON"
)
"""Values in capitals: a mistake, not a name that a script replaces."""


def bare_placeholder(text: str, start: int) -> int | None:
    """Where the placeholder ends that begins at `start`, in the place of a value; None where none does.

    Names in capitals are placeholders too: `sed` replaces them.
    """
    match = _BARE.match(text, start)
    if match is None:
        match = _NAME.match(text, start)
        if match is None or _WORDS.fullmatch(match.group()):
            return None
    return match.end()


def key_placeholder(text: str, start: int) -> int | None:
    """The same in the place of a key, where a name in capitals is a name."""
    match = _KEY.match(text, start)
    return match.end() if match else None


def is_open(value: str) -> bool:
    """Whether the text of a string is settled only by filling in; a path is a path whatever is filled in."""
    if _WHOLE.fullmatch(value):
        return True
    rest, count = _INSIDE.subn("", value)
    return count > 0 and "/" not in rest and "\\" not in rest


def is_placeholder(name: str) -> bool:
    """Whether a key is settled only by filling in."""
    return is_open(name) or key_placeholder(name, 0) == len(name)


def skip_tag(text: str, start: int, depth: int) -> tuple[int | None, int]:
    """Where reading goes on after the `{% ... %}` of Jinja at `start`, and how many branches are open then.

    `depth` of them are open before it. Of several branches the first one is read. None where there is no whole tag.
    """
    tag = _TAG.match(text, start)
    if tag is None:
        return None, depth
    name = tag.group(1)
    if name in _OPENING:
        return tag.end(), depth + 1
    if name.startswith("end") and depth:
        return tag.end(), depth - 1
    if name in ("else", "elif") and depth:
        return _after_the_branches(text, tag.end()), depth - 1
    return tag.end(), depth


def _after_the_branches(text: str, at: int) -> int | None:
    depth = 1
    for tag in _TAG.finditer(text, at):
        if tag.group(1) in ("if", "for"):
            depth += 1
        elif tag.group(1) in ("endif", "endfor"):
            depth -= 1
            if not depth:
                return tag.end()
    return None
