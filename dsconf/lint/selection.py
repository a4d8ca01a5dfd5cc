"""Which rules run: selectors are codes, beginnings of codes, names, and ALL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dsconf.lint.nearest import nearest

Rule = dict[str, Any]

ALWAYS = ("unreadable-file", "json-syntax")
"""The rules that say why a file is unusable: they can't be left out."""
_EXACT = 100
_BEGINNING = re.compile(r"[A-Z]+[0-9]*")
_CODE = re.compile(r"[A-Za-z]+[0-9]+")


def exactness(selector: str, rule: Rule) -> int:
    """How exactly a selector names a rule; -1 where it does not."""
    if selector == "ALL":
        return 0
    if selector in (rule["code"], rule["name"]):
        return _EXACT
    if _BEGINNING.fullmatch(selector) and rule["code"].startswith(selector):
        return len(selector)
    return -1


def unknown(selector: str, rules: Sequence[Rule]) -> str | None:
    """What to say of a selector that names no rule; None where it names one."""
    if _names_one(selector, rules):
        return None
    message = f'no rule is called "{selector}"'
    if _CODE.fullmatch(selector) or selector.upper() == "ALL":
        meant = selector.upper() if _names_one(selector.upper(), rules) else None
    else:
        meant = nearest(selector, [rule["name"] for rule in rules])
    return f'{message}: did you mean "{meant}"?' if meant else message


def _names_one(selector: str, rules: Sequence[Rule]) -> bool:
    return any(exactness(selector, rule) >= 0 for rule in rules)


class Choice:
    """What the settings file and the command line choose; the command line is the later layer."""

    def __init__(
        self,
        settings: tuple[Sequence[str] | None, Sequence[str]],
        given: tuple[Sequence[str], Sequence[str]],
    ) -> None:
        select, ignore = settings
        self._chosen: list[tuple[str, int, bool]] = []
        if given[0]:
            self._add(given[0], 1, selects=True)
        else:
            self._add(["ALL"] if select is None else select, 0, selects=True)
        self._add(ignore, 0, selects=False)
        self._add(given[1], 1, selects=False)

    def _add(self, selectors: Iterable[str], layer: int, *, selects: bool) -> None:
        self._chosen += [(selector, layer, selects) for selector in selectors]

    def runs(self, rule: Rule) -> bool:
        """The most exact selector counts, of equal ones that of the later layer, then the one that leaves out."""
        ranks = [
            (rank, layer, not selects)
            for selector, layer, selects in self._chosen
            if (rank := exactness(selector, rule)) >= 0
        ]
        return rule["name"] in ALWAYS or (bool(ranks) and not max(ranks)[2])
