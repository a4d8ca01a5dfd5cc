"""A baseline: findings that a project knows, and does not want to hear of again.

An entry is code, file, key and value, without line numbers: it holds while the key keeps its value.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from dsconf.document.node import Document, Node
from dsconf.document.source import Unusable, read_text
from dsconf.lint.finding import Finding, Result

VERSION = 1


class BaselineError(ValueError):
    """A baseline file that can't be used; the message says why."""


class Entry(NamedTuple):
    """What a finding is known by."""

    code: str
    file: str
    """From the folder of the baseline, with forward slashes."""
    key: str
    value: str
    """As JSON; "" where the key has none of its own: a section, or nothing that stands in the file."""


class Baseline:
    """The known findings of a file, and those that were met."""

    def __init__(self, path: str, entries: Iterable[Entry]) -> None:
        self.path = path
        self._entries = Counter(entries)

    def file_of(self, path: str) -> str:
        """The name under which the baseline lists a file."""
        folder = os.path.dirname(os.path.abspath(self.path))  # noqa: PTH100, PTH120
        return os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")  # noqa: PTH100

    def entry(self, finding: Finding, result: Result) -> Entry:
        """What a finding is known by."""
        document = next((one for one in result.documents if _holds(one, finding)), result.documents[0])
        return Entry(finding.code, self.file_of(result.file), finding.key, _value(document, finding.key))

    def apply(self, result: Result, decided: set[str]) -> Result:
        """The result without what is known. `decided` are the codes of the rules that could say something."""
        if not result.documents:
            return result
        name = self.file_of(result.file)
        left = Counter({entry: n for entry, n in self._entries.items() if entry.file == name})
        kept = []
        for finding in result.findings:
            entry = self.entry(finding, result)
            if left[entry] > 0:
                left[entry] -= 1
            else:
                kept.append(finding)
        stale = sum(n for entry, n in left.items() if entry.code in decided)
        return result._replace(findings=kept, known=len(result.findings) - len(kept), stale=stale)

    def gone(self) -> list[Result]:
        """The listed files that are no longer there."""
        folder = os.path.dirname(os.path.abspath(self.path))  # noqa: PTH100, PTH120
        counts: Counter[str] = Counter()
        for entry, n in self._entries.items():
            counts[entry.file] += n
        return [
            Result(name, [], skipped=f"it is gone, and the baseline still lists {n} of its findings")
            for name, n in sorted(counts.items())
            if not os.path.lexists(os.path.join(folder, name))  # noqa: PTH118
        ]


def _holds(document: Document, finding: Finding) -> bool:
    start, end = (document.position(offset) for offset in document.root.span)
    return start <= finding.place[1:3] < end


def _value(document: Document, key: str) -> str:
    node = _at(document.root, key.split(".")) if key else None
    if node is None or node.kind in ("object", "unknown"):
        return ""
    try:
        return json.dumps(node.plain(), sort_keys=True)
    except TypeError:  # something in a list is unknown
        return ""


def _at(node: Node, parts: list[str]) -> Node | None:
    """The node at a dotted path; keys may hold dots themselves."""
    if not parts:
        return node
    if node.kind == "array":
        index = int(parts[0]) if parts[0].isdecimal() else len(node.elements)
        return _at(node.elements[index], parts[1:]) if index < len(node.elements) else None
    members = node.members()
    for length in range(1, len(parts) + 1):
        entry = members.get(".".join(parts[:length]))
        found = _at(entry.node, parts[length:]) if entry else None
        if found is not None:
            return found
    return None


def load_baseline(path: str) -> Baseline:
    """The baseline in a file. Raises BaselineError."""
    try:
        data = json.loads(read_text(path).removeprefix("\ufeff"))
    except Unusable as problem:
        raise BaselineError(problem.message) from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"no JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("findings"), list):
        raise BaselineError("no baseline: --write-baseline writes one")
    if data.get("version") != VERSION:
        raise BaselineError(f"its version is {data.get('version')!r}; this dsconf reads {VERSION}")
    return Baseline(path, [_entry(number, row) for number, row in enumerate(data["findings"], 1)])


def _entry(number: int, row: Any) -> Entry:
    texts = [row.get(field) if isinstance(row, dict) else None for field in ("code", "file", "key")]
    code, file, key = texts
    if not (isinstance(code, str) and isinstance(file, str) and isinstance(key, str)):
        raise BaselineError(f"finding {number} should have code, file and key")
    value = json.dumps(row["value"], sort_keys=True) if "value" in row else ""
    return Entry(code, file, key, value)


def write_baseline(path: str, results: Iterable[Result]) -> int:
    """Write the findings of all files that could be judged; how many. Raises OSError."""
    from dsconf.document.write import write_text

    baseline = Baseline(path, [])
    entries = sorted(
        (
            baseline.entry(finding, result)
            for result in results
            if result.documents
            for finding in result.findings
        ),
        key=lambda entry: (entry.file, entry.key, entry.code, entry.value),
    )
    rows = [
        {"code": entry.code, "file": entry.file, "key": entry.key}
        | ({"value": json.loads(entry.value)} if entry.value else {})
        for entry in entries
    ]
    write_text(path, json.dumps({"version": VERSION, "findings": rows}, indent=2) + "\n")
    return len(entries)
