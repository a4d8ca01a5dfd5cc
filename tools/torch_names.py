"""Writes `dsconf/formats/fsdp2/torch_names.json`: since which torch the names exist that emitted modules use.

    for v in 2.6.0 2.9.1 2.13.0; do
      pip download --no-deps torch==$v && unzip torch-$v-*.whl '*.py' -d DIR/$v
    done
    python -m tools.torch_names DIR

Each folder in DIR is named after a version and holds the sources of its package `torch`; nothing of it is run.
Names are followed through imports to the file that defines them; what torch makes in C++ (`torch.where`) is taken
to exist.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from dsconf.document.write import write_text
from dsconf.formats.fsdp2.torch_names import DATA, OLDEST, numbers, used_names

PARTS = DATA.parent / "parts"

Found = tuple[Path, ast.AST]


def names_of_parts() -> set[str]:
    """The names of torch that some part uses."""
    return set().union(*(used_names(path.read_text(encoding="utf-8")) for path in PARTS.glob("*.py")))


def has(root: Path, name: str) -> bool:
    """Whether the torch under `root` has a name, as `used_names` writes it."""
    dotted, _, argument = name.rstrip(")").partition("(")
    if dotted.count(".") == 1 and not _module(root, dotted):
        return True
    if _module(root, dotted):
        return True
    found = _find(root, dotted)
    if found is None or not argument:
        return found is not None
    return argument in _arguments(root, found)


def _module(root: Path, dotted: str) -> Path | None:
    path = root / dotted.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _find(root: Path, dotted: str, seen: tuple[str, ...] = ()) -> Found | None:
    """The definition of a function, class or variable, or of a method."""
    parts = dotted.split(".")
    for end in range(len(parts) - 1, 0, -1):
        file = _module(root, ".".join(parts[:end]))
        if file is not None:
            break
    else:
        return None
    found = _in_module(root, file, ".".join(parts[:end]), parts[end], (*seen, dotted))
    for attribute in parts[end + 1 :]:
        if found is None:
            return None
        inside = [node for node in getattr(found[1], "body", ()) if getattr(node, "name", "") == attribute]
        found = (found[0], inside[-1]) if inside else None
    return found


def _in_module(root: Path, file: Path, module: str, name: str, seen: tuple[str, ...]) -> Found | None:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    imported: list[str] = []
    found: Found | None = None
    for node in _statements(_parsed(file).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            found = file, node  # overloads come before the function itself
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                found = found or (file, node)
        elif isinstance(node, ast.ImportFrom):
            source = _source(package, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    imported.append(f"{source}.{alias.name}")
                elif alias.name == "*":
                    imported.append(f"{source}.{name}")
    if found is not None:
        return found
    for full in imported:
        known = _module(root, full)
        if known is not None:
            return known, _parsed(known)
        if full not in seen:
            found = _find(root, full, seen)
            if found is not None:
                return found
    return None


def _source(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")
    base = ".".join(above[: len(above) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if` and `try` included."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try):
                yield from _statements(getattr(node, block, []))


def _arguments(root: Path, found: Found) -> set[str]:
    """The arguments that a function or class takes."""
    file, node = found
    if isinstance(node, ast.ClassDef):
        makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        fields = {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        return _arguments(root, (file, makers[-1])) if makers else fields
    if not isinstance(node, ast.FunctionDef):
        return set()
    taken = node.args
    return {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def main(folder: str) -> None:
    """Read every torch in a folder and write the file."""
    roots = sorted((path for path in Path(folder).iterdir() if path.is_dir()), key=lambda p: numbers(p.name))
    names = sorted(names_of_parts())
    since: dict[str, str] = {}
    for name in names:
        have = [root for root in roots if has(root, name)]
        if not have:
            sys.stderr.write(f"no torch in {folder} has {name}\n")
            continue
        first = ".".join(have[0].name.split(".")[:2])
        if first != OLDEST:
            since[name] = first
    read = [root.name for root in roots]
    text = json.dumps({"read": read, "since": since, "names": names}, indent=1)
    write_text(str(DATA), text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
