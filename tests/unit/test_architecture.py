"""The import graph of dsconf, read from the source: no cycles, downwards only, short chains, a light lint path."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dsconf"
LONGEST_CHAIN = 7
"""Modules."""

FORMATS = ("accelerate", "trainer", "axolotl", "llamafactory")
"""Those that stand beside DeepSpeed's."""
# Imports that the source makes by a computed name.
COMPUTED = {
    "dsconf.lint.fixes": {"dsconf.document.edit", "dsconf.document.yaml_edit"},
    "dsconf.lint.formats": {
        *(f"dsconf.formats.{name}.{part}" for name in FORMATS for part in ("keys", "facts")),
        *(f"dsconf.lint.checks.{name}" for name in ("deepspeed", *FORMATS)),
        "dsconf.config.derive",
        "dsconf.formats.deepspeed.keys",
    },
    "dsconf.translate.rooms": {
        *(
            f"dsconf.formats.{name}.read"
            for name in ("deepspeed", "fsdp2", "accelerate", "trainer", "axolotl")
        ),
        *(
            f"dsconf.formats.{name}.write"
            for name in ("deepspeed", "fsdp2", "accelerate", "trainer", "axolotl")
        ),
        *(f"dsconf.formats.{name}.write_deepspeed" for name in ("accelerate", "trainer")),
        *(f"dsconf.formats.accelerate.{name}" for name in ("read_deepspeed", "in_place")),
        *("dsconf.formats.axolotl.arguments", "dsconf.formats.trainer.merge"),
    },
    "dsconf.cli": {f"dsconf.cli.{path.stem}" for path in (PACKAGE / "cli").glob("[a-z]*.py")}
    - {"dsconf.cli.options", "dsconf.cli.circumstances", "dsconf.cli.project", "dsconf.cli.per_file"},
    "dsconf.lint.report": {
        f"dsconf.lint.report.{path.stem}" for path in (PACKAGE / "lint" / "report").glob("[a-z]*.py")
    }
    - {"dsconf.lint.report.summary"},
}
# From the bottom up: a module imports from its own layer and from those below it.
LAYERS = ("document", "config", "formats", "lint", "settings", "translate", "cli")
# Leaves that import nothing of dsconf.
LEAVES = {"dsconf", "dsconf.plan", "dsconf.formats.outcome", "dsconf.formats.key"}
# What lint may import when it starts: click and cheap parts of the standard library.
LIGHT = {
    "__future__", "bisect", "click", "collections", "functools", "gc", "importlib", "io", "itertools", "json",
    "operator", "os", "re", "stat", "sys", "typing",
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def named(node: ast.AST) -> Iterator[str]:
    """The modules that an import statement names; of `from package import module` the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        base = node.module or ""
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in MODULES else base


def imports(module: str) -> set[str]:
    """Everything that a module imports, functions included."""
    found = {name for node in ast.walk(tree(module)) for name in named(node)}
    return found | COMPUTED.get(module, set())


def imports_at_start(module: str) -> set[str]:
    """What is imported as soon as the module is: all but what stands in functions, and what only types need."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree(module)]
    while stack:
        node = stack.pop()
        found.update(named(node))
        types_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not (types_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))
    return found


def inside(names: set[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] == "dsconf"}


GRAPH = {module: inside(imports(module)) - {module} for module in MODULES}


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_the_graph_is_what_it_seems() -> None:
    assert len(MODULES) > 40
    assert all(below in MODULES for edges in GRAPH.values() for below in edges)
    assert "dsconf.lint.compile" in GRAPH["dsconf.lint.index"], "an import in a function"
    assert "dsconf.lint.compile" not in imports_at_start("dsconf.lint.index")
    assert "dsconf.cli.lint" in GRAPH["dsconf.cli"]
    assert {layer(module) for module in MODULES} - {"", "__main__", "plan"} == set(LAYERS)


def test_computed_imports_are_known() -> None:
    users = {module for module in MODULES if "importlib" in imports(module)}
    assert users == set(COMPUTED)
    for module, targets in COMPUTED.items():
        assert targets <= set(MODULES), module


def chains(graph: dict[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """The longest chain of imports that begins with each module; fails on a cycle."""
    known: dict[str, tuple[str, ...]] = {}

    def longest(module: str, above: tuple[str, ...]) -> tuple[str, ...]:
        assert module not in above, f"a cycle: {' > '.join([*above, module])}"
        if module not in known:
            below = [longest(name, (*above, module)) for name in sorted(graph[module])]
            known[module] = (module, *max(below, key=len, default=()))
        return known[module]

    for module in graph:
        longest(module, ())
    return known


def test_no_cycle() -> None:
    assert set(chains(GRAPH)) == set(MODULES)
    with pytest.raises(AssertionError, match="a cycle: a > b > c > a"):
        chains({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_no_long_chain() -> None:
    """Of imports that stand in the source: a command and a reporter are looked up by name, and not counted."""
    written = {module: edges - COMPUTED.get(module, set()) for module, edges in GRAPH.items()}
    chain = max(chains(written).values(), key=len)
    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


@pytest.mark.parametrize("module", sorted(LEAVES))
def test_leaves_import_nothing_of_dsconf(module: str) -> None:
    assert GRAPH[module] == set()


@pytest.mark.parametrize("module", sorted(set(MODULES) - LEAVES))
def test_imports_go_downwards(module: str) -> None:
    if module == "dsconf.__main__":
        assert GRAPH[module] == {"dsconf.cli"}
        return
    for below in GRAPH[module] - LEAVES:
        assert LAYERS.index(layer(below)) <= LAYERS.index(layer(module)), f"{module} imports {below}"


SHARED = LEAVES | {
    f"dsconf.formats.{name}"
    for name in (
        "reading", "writing", "choices", "row", "section", "pruning", "fsdp_section", "fsdp_precision",
        "yaml_lines", "layout",
    )
}  # fmt: skip
"""What all formats use."""
TRAINING = "dsconf.formats.training"
"""What Trainer and Axolotl, which hands its keys on to it, share."""
GENERATOR = "dsconf.formats.table"
"""It writes the key tables of all formats."""


def test_formats_do_not_know_each_other() -> None:
    for module, edges in GRAPH.items():
        if layer(module) != "formats" or module in {*SHARED, GENERATOR}:
            continue
        for below in edges - SHARED:
            if layer(below) == "formats" and not below.startswith(f"{TRAINING}."):
                assert below.split(".")[2] == module.split(".")[2], f"{module} imports {below}"


def test_only_formats_and_translate_know_the_plan() -> None:
    users = {module for module, edges in GRAPH.items() if "dsconf.plan" in edges}
    assert {layer(module) for module in users} <= {"formats", "translate"}


def test_emitted_parts_import_nothing_of_dsconf_but_each_other() -> None:
    parts = {module for module in MODULES if module.startswith("dsconf.formats.fsdp2.parts.")}
    for module in parts:
        assert GRAPH[module] <= parts, module


def lint_path() -> set[str]:
    """Every module that `dsconf lint` imports before it has read a file."""
    found: set[str] = set()
    stack = [
        "dsconf.__main__",
        "dsconf.cli.lint",
        *(COMPUTED["dsconf.lint.report"] - {"dsconf.lint.report.sarif"}),
    ]
    while stack:
        module = stack.pop()
        if module not in found:
            found.add(module)
            stack += inside(imports_at_start(module)) | ({module.rpartition(".")[0]} & set(MODULES))
    return found


def test_the_lint_path_is_light() -> None:
    path = lint_path()
    assert {
        "dsconf.cli",
        "dsconf.lint.engine",
        "dsconf.document.json_scanner",
    } <= path
    later = {"cli.translate", "lint.compile", "plan", "settings.load", "lint.suppress", "lint.baseline"}
    assert not {f"dsconf.{name}" for name in later} & path
    for module in path:
        heavy = imports_at_start(module) - inside(imports_at_start(module))
        heavy = {name for name in heavy if name.partition(".")[0] not in LIGHT} | (
            heavy & {"importlib.metadata"}
        )
        assert not heavy, f"{module} imports {', '.join(heavy)}"


def test_nothing_but_the_standard_library_and_the_dependencies_is_imported() -> None:
    allowed = {
        "click",
        "jellyfish",
        "pathspec",
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "ruamel",
        "libcst",
    }
    for module in MODULES:
        roots = {name.partition(".")[0] for name in imports(module)} - {"dsconf"} - sys.stdlib_module_names
        if module.startswith("dsconf.formats.fsdp2.parts."):
            roots -= {"torch"}
        assert roots <= allowed, module
