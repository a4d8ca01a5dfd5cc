"""Rules of the user's own: pages of the same form as dsconf's, compiled when they are used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsconf.config.context import Context
from dsconf.lint.compile import RuleError, compile_rule
from dsconf.lint.formats import format_named
from dsconf.lint.names import faults, leaves

_PAGE = re.compile(r"[A-Za-z]+\d+-.*\.md")
_CODE = re.compile(r"[A-Z]{2,}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
RESERVED = ("DS", "AC", "TR", "FS", "PY")
"""The families of dsconf."""


def load_user_rules(folder: str, others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every `CODE-name.md` in or below a folder, by code; `others` are the rules that there are already.

    Raises RuleError, naming the file.
    """
    root = Path(folder)
    if not root.is_dir():
        raise RuleError(f"{folder}: no such folder of rules")
    rules: list[dict[str, Any]] = []
    for page in sorted(path for path in root.rglob("*.md") if _PAGE.fullmatch(path.name)):
        try:
            rules.append(_rule(page, [*others, *rules]))
        except KeyError as error:
            raise RuleError(f"{page}: no {error} where it is needed") from None
        except (ValueError, TypeError, AttributeError, OSError) as error:
            raise RuleError(f"{page}: {error}") from None
    if not rules:
        raise RuleError(f"{folder}: it has no rule: a file called CODE-name.md")
    return sorted(rules, key=lambda rule: str(rule["code"]))


def _rule(page: Path, others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rule = compile_rule(page.read_text(encoding="utf-8"), page.name, own=False)
    rule["url"] = page.as_posix()
    code, name = rule["code"], rule["name"]
    if not (isinstance(code, str) and _CODE.fullmatch(code)):
        raise RuleError(f"the code should be two capital letters or more and three digits, not {code!r}")
    if re.fullmatch(f"({'|'.join(RESERVED)})\\d+", code):
        raise RuleError(f"{code}: codes with {', '.join(RESERVED)} are dsconf's own")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise RuleError(f"the name should be small letters, digits and dashes, not {name!r}")
    if page.stem != f"{code}-{name}":
        raise RuleError(f"the file should be called {code}-{name}.md")
    for other in others:
        for field in ("code", "name"):
            if rule[field] == other[field]:
                raise RuleError(f"the {field} {rule[field]} is that of {other['url']}")
    if rule["kind"] != "when":
        raise RuleError("a rule of your own has a condition (when), and no schema, check or raised_by")
    formats = {word for other in others for word in other["formats"]}
    if not isinstance(rule["formats"], list) or not formats.issuperset(rule["formats"]):
        raise RuleError(f"formats should be a list of {', '.join(sorted(formats))}, not {rule['formats']!r}")
    known = [format_named(name) for name in rule["formats"]]
    wrong = [
        *(fault for each in known for fault in faults(rule, each.table_for(None, Context()), each.facts)),
        *(f"no key.{name} in a condition" for name in leaves(rule, "key")),
    ]
    if wrong:
        raise RuleError("; ".join(wrong))
    if not (rule["message"] and rule["message"][-1][0] is None and rule["severity"][-1][0] is None):
        raise RuleError("the last message and the last severity have no condition")
    return rule
