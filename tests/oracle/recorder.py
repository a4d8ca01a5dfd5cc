"""A config that notes which of its keys are read."""

from __future__ import annotations

import copy
from typing import Any

from .grid import Config


class Recorder(dict[str, Any]):
    """A section that notes every key it is asked for."""

    def __init__(self, values: Config, path: str, asked: set[str]) -> None:
        self.path, self.asked = path, asked
        super().__init__({key: self._wrapped(key, value) for key, value in values.items()})

    def _at(self, key: object) -> str:
        return f"{self.path}.{key}" if self.path else str(key)

    def _wrapped(self, key: object, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrapped(f"{key}.0", item) for item in value]
        return Recorder(value, self._at(key), self.asked) if isinstance(value, dict) else value

    def _note(self, key: object) -> None:
        self.asked.add(self._at(key))

    def __copy__(self) -> Recorder:
        return Recorder(self, self.path, self.asked)

    def __deepcopy__(self, memo: object) -> Recorder:
        return copy.copy(self)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        return self
