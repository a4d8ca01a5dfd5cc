"""The keys of a DeepSpeed 0.19.8 config: the one place where they are declared."""

from __future__ import annotations

from dsconf.formats.deepspeed.model.root import DeepSpeedConfig

__all__ = ["DeepSpeedConfig"]
