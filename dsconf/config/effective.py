"""Effective values: for each key what the framework ends up with, where that comes from, and how facts read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.context import Context
from dsconf.config.tables import Spec, spec_at
from dsconf.document.node import UNKNOWN, Document, Entry, Node

Origin = Literal[
    "written", "default", "dropped", "filled", "overridden", "derived", "invalid", "absent", "open"
]


BESIDE = ("ds",)
"""The names of Configs that may belong to another one."""


class Value(NamedTuple):
    """An effective value (or UNKNOWN) and its origin.

    `dropped`: "auto" where the framework puts its default; `filled`: "auto" that Trainer or Accelerate replaces;
    `derived`: it follows from other keys (`resolve` says so); `invalid`: written, and refused; `absent`: not written
    and without a default; `open`: written as what only a run determines (a placeholder, a variable).
    """

    value: object
    origin: Origin


class Written(NamedTuple):
    """A key as it stands in the file."""

    path: str
    """Dotted, with the canonical name of each key."""
    entry: Entry
    section: Spec
    """The table's node of the object that holds the key."""
    spec: Spec | None
    """The table's node of the key, as it holds for the spelling; None where the section does not declare it."""

    @property
    def is_alias(self) -> bool:
        """Whether the key is spelt otherwise than canonically."""
        return self.entry.key != self.path.rpartition(".")[2]

    @property
    def wins(self) -> bool:
        """Whether the spelling counts, where one that stands before it is another one of the key.

        That is the canonical one, unless the section says otherwise.
        """
        wins = self.section.get("wins", "canonical")
        return wins == "last" or self.is_alias is (wins == "alias")


class Config:
    """The effective settings of one file, by dotted canonical path such as `zero_optimization.stage`."""

    def __init__(
        self,
        document: Document,
        table: Spec,
        context: Context,
        overrides: Mapping[str, object] | None = None,
        fills: Mapping[str, object] | None = None,
        format: str = "deepspeed",
        beside: Mapping[str, Config] | None = None,
    ) -> None:
        """`table` is the root of a key table; `overrides` are values by path that count instead of the file's.

        `fills` are the values by path that the consumer puts where the file says "auto", `format` is the room of the
        table, and `beside` holds the Configs that belong to this one, by the name under which rules read them.
        """
        self.document = document
        self.table = table
        self.context = context
        self.overrides = dict(overrides or {})
        self.fills = fills or {}
        self.format = format
        self.beside = beside or {}
        self.written = _walk(document, table)
        self._values: dict[str, Value] = {}
        self._by_path: dict[str, Written] = {}
        self._open = [""] if document.root.open else []
        """What begins the paths of keys that may be there without being written."""
        for item in self.written:
            if item.entry.node.open or item.entry.node.kind == "unknown":
                self._open.append(f"{item.path}.")
            known = self._by_path.get(item.path)
            if known is None or item.wins:
                self._by_path[item.path] = item

    @property
    def paths(self) -> set[str] | None:
        """The paths that have a value of their own; None where more depends on the file than those.

        All other paths are as they are in every file with the same table and context, unless a section is no object
        or holds keys that the text does not show.
        """
        if self.beside or self.document.root.open or any(_is_odd_section(item) for item in self.written):
            return None
        return {*self._by_path, *self.overrides}

    @property
    def as_written(self) -> dict[str, object]:
        """The keys in the order of the file, then those of the overrides, each with its value as it is shown."""
        return {path: self.shown(path) for path in [*(item.path for item in self.written), *self.overrides]}

    def entry(self, path: str) -> Entry | None:
        """The entry of the file that stands for `path`, in whatever spelling."""
        item = self._by_path.get(path)
        return item.entry if item else None

    def present(self, path: str) -> bool:
        """Whether the key is written, whatever its value."""
        return path in self._by_path or path in self.overrides

    def knows(self, path: str) -> bool:
        """Whether the DeepSpeed that will run has the key."""
        try:
            spec_at(self.table, path)
        except KeyError:
            return False
        return True

    def may_hold(self, path: str) -> bool:
        """Whether a key that is not written may be there all the same: code may add keys to a section above it."""
        if not self._open or self.present(path):
            return False
        return any(path.startswith(section) for section in self._open)

    def raw(self, path: str) -> object:
        """The value as written (an override first), None where nothing is written."""
        if path in self.overrides:
            return self.overrides[path]
        item = self._by_path.get(path)
        return item.entry.node.plain() if item else None

    def shown(self, path: str) -> object:
        """The value as written (an override first), for people: what a template leaves open is its text."""
        if path in self.overrides:
            return self.overrides[path]
        item = self._by_path.get(path)
        return self._shown(path, item.entry.node) if item else None

    def _shown(self, path: str, node: Node) -> object:
        if path in self.overrides:
            return self.overrides[path]
        if node.kind == "object":
            return {entry.key: self._shown(f"{path}.{entry.key}", entry.node) for entry in node.entries}
        value = node.plain()
        return self.document.text[node.span.start : node.span.end] if value is UNKNOWN else value

    def handed(self, path: str) -> object:
        """The value as DeepSpeed gets it: as written, or what the consumer puts where that is "auto"."""
        raw = self.raw(path)
        filled = self.effective(path) if raw == "auto" and path in self.fills else None
        return filled.value if filled and filled.origin == "filled" else raw

    def value(self, path: str) -> object:
        """The effective value, or UNKNOWN."""
        return (self._values.get(path) or self.effective(path)).value

    def effective(self, path: str) -> Value:
        """The effective value with its origin. Raises KeyError for a path that the table does not declare.

        What an older DeepSpeed does not know yet has no value.
        """
        value = self._values.get(path)
        if value is None:
            value = self._values[path] = self._effective(path)
        return value

    def _effective(self, path: str) -> Value:
        try:
            section, spec = spec_at(self.table, path)
        except KeyError:
            if self.context.deepspeed_version is None:
                raise
            return Value(UNKNOWN, "absent")
        if path in self.overrides:
            return self._settle(path, section, spec, self.overrides[path], "overridden")
        item = self._by_path.get(path)
        if item is not None:
            return self._settle(path, section, item.spec or spec, item.entry.node.plain(), "written")
        if self.may_hold(path):
            return Value(UNKNOWN, "open")
        if not self._defaults_hold(path):
            return Value(UNKNOWN, "invalid")
        switch = self._switch(path)
        return _default(spec, "default") if switch is None else Value(int(switch), "written")

    def strict(self, path: str) -> bool:
        """Whether the section that holds `path` does not take "auto" for an absent key.

        Pydantic sections take a key `strict` themselves, which asks for that.
        """
        return bool(self.raw(f"{path.rpartition('.')[0]}.strict"))

    def drops_auto(self, path: str, section: Spec) -> bool:
        """Whether "auto" at `path`, a key of `section`, counts as absent."""
        return section.get("reader") == "pydantic" and not self.strict(path)

    def unread(self, item: Written) -> bool:
        """Whether a key belongs to parameters of something without a type, which DeepSpeed does not build."""
        depends = (item.spec or {}).get("unknown") == "depends"
        if not depends and item.section.get("unknown") != "depends":
            return False
        owner = item.path.rpartition(".")[0] if depends else item.path.rpartition(".")[0].rpartition(".")[0]
        return self.raw(f"{owner}.type" if owner else "type") is None

    def _settle(self, path: str, section: Spec, spec: Spec, raw: object, origin: Origin) -> Value:
        reader = section.get("reader", "raw")
        if raw is UNKNOWN:
            return Value(UNKNOWN, "open")
        if raw == "auto" and "auto" not in spec.get("values", ()):
            fillers = spec.get("filled_by", ())
            consumer = self.context.consumer
            if fillers and (consumer is None or consumer in fillers):
                return Value(self.fills.get(path, UNKNOWN), "filled")
            if self.drops_auto(path, section):
                return _default(spec, "dropped")
            # Nobody changes it where DeepSpeed itself reads the file: it may be text that counts as true.
            if reader == "raw" and consumer != "deepspeed":
                return Value(UNKNOWN, "invalid")
        value = coerce(spec, reader, raw, strict=self.strict(path))
        return Value(UNKNOWN, "invalid") if isinstance(value, Invalid) else Value(value, origin)

    def _defaults_hold(self, path: str) -> bool:
        """Whether the sections above `path` are objects (or lists of them), or absent, so that its default applies."""
        keys = path.split(".")
        for depth in range(1, len(keys)):
            above = ".".join(keys[:depth])
            item = self._by_path.get(above)
            if item is None or item.entry.node.kind == "object":
                continue
            spec = item.spec or {}
            if item.entry.node.kind == "array" and "items" in spec and "each" in spec:
                continue
            raw = item.entry.node.plain()
            if raw is None and spec.get("nullable"):
                continue
            if raw == "auto" and self.drops_auto(above, item.section):
                continue
            if isinstance(raw, bool) and "switches" in spec:
                continue
            return False
        return True

    def _switch(self, path: str) -> bool | None:
        """The true or false that stands in place of a section and decides its key `path`; None where none does."""
        above, _, name = path.rpartition(".")
        item = self._by_path.get(above)
        if item is None or (item.spec or {}).get("switches") != name:
            return None
        raw = item.entry.node.plain()
        return raw if isinstance(raw, bool) else None


class Derived(NamedTuple):
    """The value of a fact (or UNKNOWN) and what it was derived from."""

    value: object
    paths: frozenset[str]
    missing_context: frozenset[str]
    """Fields of the Context that it asked for, and that are not known."""


class Reader:
    """Reads a Config for one fact and records what was read."""

    def __init__(self, config: Config, lookup: Callable[[str], Derived]) -> None:
        self._config = config
        self._lookup = lookup
        self.paths: set[str] = set()
        self.missing_context: set[str] = set()

    def value(self, path: str) -> object:
        """The effective value of a path."""
        self.paths.add(path)
        return self._config.value(path)

    def given(self, path: str) -> object:
        """The value of a path, None where it is not written or null, or not known to an older DeepSpeed."""
        self.paths.add(path)
        if self._config.may_hold(path):
            return UNKNOWN
        if not self._config.knows(path):
            return None
        return self._config.value(path) if self._config.raw(path) is not None else None

    def written(self, path: str) -> object:
        """The value of a path as DeepSpeed gets it, None where it is not written."""
        self.paths.add(path)
        return UNKNOWN if self._config.may_hold(path) else self._config.handed(path)

    def present(self, path: str) -> bool:
        """Whether a path is written."""
        self.paths.add(path)
        return self._config.present(path)

    def may_hold(self, path: str) -> bool:
        """Whether a path that is not written may be there all the same."""
        self.paths.add(path)
        return self._config.may_hold(path)

    def since(self, release: str) -> bool:
        """Whether the DeepSpeed that will run is a release, or newer."""
        return self._config.context.since(release)

    def context(self, name: str) -> object:
        """A field of the Context, UNKNOWN where it is not given."""
        value = self._config.context.known(name)
        if value is None:
            self.missing_context.add(name.partition(".")[0])
            return UNKNOWN
        return value

    def hint(self, name: str) -> object:
        """A field of the Context that nothing is missing without, None where it is not given."""
        return self._config.context.known(name)

    def fact(self, name: str) -> object:
        """Another fact; what it was derived from counts for this one too."""
        derived = self._lookup(name)
        self.paths |= derived.paths
        self.missing_context |= derived.missing_context
        return derived.value


class Facts:
    """The facts of one Config, each computed once, when it is asked for."""

    def __init__(self, config: Config, known: Mapping[str, Callable[[Reader], object]]) -> None:
        """`known` are the facts by name: `dsconf.config.derive.FACTS`."""
        self.config = config
        self._functions = known
        self._derived: dict[str, Derived] = {}

    def value(self, name: str) -> object:
        """The value of a fact, or UNKNOWN. Raises KeyError for a name that is no fact."""
        return self.derived(name).value

    def derived(self, name: str) -> Derived:
        """A fact with what it was derived from. Raises KeyError for a name that is no fact."""
        known = self._derived.get(name)
        if known is None:
            reader = Reader(self.config, self.derived)
            value = self._functions[name](reader)
            paths, missing = frozenset(reader.paths), frozenset(reader.missing_context)
            known = self._derived[name] = Derived(value, paths, missing)
        return known


def _default(spec: Spec, origin: Origin) -> Value:
    if "default" in spec:
        return Value(spec["default"], origin)
    return Value(UNKNOWN, "absent")


def _is_odd_section(item: Written) -> bool:
    """Whether something is written for a section that says more of its keys than which of them are written."""
    node, spec = item.entry.node, item.spec
    if spec is None:
        return node.open or node.kind == "unknown"  # an older DeepSpeed may not know the section
    return ("keys" in spec or "each" in spec) and (node.open or node.kind != "object")


def _walk(document: Document, table: Spec) -> list[Written]:
    """Every key of the declared sections that counts (of one written twice the last), in the order of the text."""
    found: list[Written] = []
    stack = [("", table, document.root, True)]
    while stack:
        prefix, section, node, canonical = stack.pop()
        below = []
        keys = section.get("keys", {})
        members = node.members()
        for entry in members.values():
            spec = keys.get(entry.key, section.get("each"))
            name = entry.key
            direct = canonical
            if spec and "alias" in spec:
                name, direct = spec["alias"], False
                spec = {**keys[name], **spec}
            if spec and not direct:
                # Who fills "auto" does not look for other spellings.
                spec = {field: value for field, value in spec.items() if field not in ("alias", "filled_by")}
            path = f"{prefix}.{name}" if prefix else name
            found.append(Written(path, entry, section, spec))
            # Of a section in two spellings the canonical one counts, unless it is null.
            counting = members.get(name, entry)
            if spec is not None and (counting is entry or counting.node.kind == "null"):
                below += [
                    (place, inner, each, direct) for place, inner, each in _below(path, spec, entry.node)
                ]
        stack.extend(reversed(below))
    found.sort(key=lambda item: item.entry.key_span)
    return found


def _below(path: str, spec: Spec, node: Node) -> list[tuple[str, Spec, Node]]:
    """The objects in the value of a key whose own keys are declared: path, the table's node, the value."""
    if node.kind == "object" and ("keys" in spec or ("each" in spec and "items" not in spec)):
        return [(path, spec, node)]
    if node.kind == "array" and "items" in spec and "each" in spec:
        objects = [
            (f"{path}.{i}", element) for i, element in enumerate(node.elements) if element.kind == "object"
        ]
        return [(place, spec["each"], element) for place, element in objects]
    return []
