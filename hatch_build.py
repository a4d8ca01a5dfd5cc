"""Build hook: compiles rules/ into the index that an installed dsconf reads."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuleIndexHook(BuildHookInterface[Any]):
    """Adds `dsconf/_rules.json` to a wheel; an editable install reads the rule files themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the rules; a rule that does not compile stops the build."""
        if version == "editable":
            return
        root = Path(self.root)
        compiler = _load(root / "dsconf" / "lint" / "compile.py")
        index = json.dumps(compiler.compile_rules(root / "rules"), ensure_ascii=False, separators=(",", ":"))
        target = Path(tempfile.mkdtemp()) / "_rules.json"
        target.write_text(index, encoding="utf-8")
        build_data["force_include"][str(target)] = "dsconf/_rules.json"


def _load(path: Path) -> ModuleType:
    """The compiler alone: it needs the standard library only, and the package's dependencies are not here."""
    spec = importlib.util.spec_from_file_location("dsconf_rule_compiler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
