"""From a YAML text to a Document, with the values that PyYAML's safe_load gives, on ruamel.yaml's parser.

Trainers and launchers read YAML with PyYAML; ruamel.yaml has its parser, with places for everything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dsconf.document.node import Document, Reading, named
from dsconf.document.source import Unusable
from dsconf.document.yaml_comments import StrayTab, comments
from dsconf.document.yaml_faults import TAB, fault_of
from dsconf.document.yaml_tree import OTHER_BREAKS, Builder, error

if TYPE_CHECKING:
    from dsconf.document.yaml_template import Masked

_LONGEST = 1 << 20
_NO_SPACE = re.compile(r"\w+:\S")
_STUMBLES = (LookupError, ValueError, TypeError, AttributeError, AssertionError, NotImplementedError)
"""What the parser raises for some broken texts in the place of an error of its own."""


def scan_yaml(path: str, text: str) -> Document:
    """Parse the only document of a YAML text.

    The values are those of PyYAML's safe_load; a date, a tag of an application's own and a placeholder are "unknown".
    What an alias stands for, and what `<<` merges, has its place where it is written.

    Raises Unusable (rule `yaml-syntax`), with the place, where PyYAML can't read the text, or where it is too deep,
    too large, or has no mapping at the top.
    """
    try:
        return Document(path, text, _read(text), language="yaml")
    except Unusable as problem:
        problem.text = text
        raise


def load_yaml(text: str) -> Any:
    """The value of a YAML text, with UNKNOWN where the text leaves it open. Raises ValueError, naming the line."""
    try:
        return _read(text).root.plain()
    except Unusable as problem:
        at = problem.span.start if problem.span else 0
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ValueError(f"line {line}, column {column}: {problem.message}") from None


def _read(text: str) -> Reading:
    if len(text) > _LONGEST:
        raise Unusable("yaml-syntax", "the file is too large for a configuration")
    try:
        return _parsed(text, None)
    except Unusable:
        if "{{" not in text and "{%" not in text:
            raise
    from dsconf.document.yaml_template import masked  # few files need it

    return _parsed(text, masked(text))


def _parsed(text: str, mask: Masked | None) -> Reading:
    """What a text holds; of a template with a mask, which is what is read of it."""
    builder = Builder(text, mask)
    shown = mask.text if mask else text
    yaml = YAML(typ="safe", pure=True)
    yaml.version = "1.1"
    try:
        for event in yaml.parse(OTHER_BREAKS.sub("\n", shown)):
            builder.take(event)
    except YAMLError as fault:
        raise Unusable("yaml-syntax", *fault_of(fault, text)) from None
    except _STUMBLES as fault:
        raise error(f"this is not YAML: {fault}", 0, min(1, len(text))) from None
    root = builder.root
    if root is None or (root.kind == "null" and root.span.start == root.span.end):
        raise error("the file holds no keys", len(text), len(text))
    if root.kind == "string" and _NO_SPACE.match(str(root.scalar)):
        raise error('there is no space after the ":"', *root.span)
    if root.kind != "object":
        raise error(f"the top level is {named(root)}, not keys with their values", *root.span)
    placeholders = sorted({*builder.placeholders, *(mask.placeholders if mask else ())})
    try:
        return Reading(root, comments(shown, builder.scalars), placeholders, [])
    except StrayTab as tab:
        raise Unusable("yaml-syntax", TAB, tab.span) from None
