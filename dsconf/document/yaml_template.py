"""Takes the placeholders and tags of Jinja out of a text, so that the rest can be read as YAML."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from dsconf.document.node import Span
from dsconf.document.template import skip_tag

_SIGN = re.compile(r"\{\{[^{}\n]*\}\}|\{%")
_VISIBLE = re.compile(r"[^\r\n]")


class Masked(NamedTuple):
    """A text of the same length without what Jinja replaces."""

    text: str
    placeholders: list[Span]
    """What is replaced, in order."""
    branches: list[Span]
    """Where values stand that count only sometimes, in order."""

    def leaves_open(self, span: Span) -> bool:
        """Whether only filling in settles what stands there."""
        return _touches(self.placeholders, span) or _touches(self.branches, span)


def _touches(spans: list[Span], span: Span) -> bool:
    after = bisect_left(spans, (span.end,))
    return after > 0 and spans[after - 1].end > span.start


def masked(text: str) -> Masked:
    """Words in the place of `{{ x }}`, spaces in the place of tags and of all branches but the first."""
    pieces: list[str] = []
    found = Masked("", [], [])
    at = depth = begun = 0
    while (sign := _SIGN.search(text, at)) is not None:
        start, end = sign.span()
        filling = "x"
        if sign.group() == "{%":
            after, now = skip_tag(text, start, depth)
            if after is None:
                break
            if now and not depth:
                begun = start
            elif depth and not now:
                found.branches.append(Span(begun, start))
            filling, end, depth = " ", after, now
        pieces += [text[at:start], _VISIBLE.sub(filling, text[start:end])]
        found.placeholders.append(Span(start, end))
        at = end
    if depth:
        found.branches.append(Span(begun, len(text)))
    return found._replace(text="".join([*pieces, text[at:]]))
