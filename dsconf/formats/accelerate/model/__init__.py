"""The keys of a config of Accelerate 1.15, as `accelerate launch` reads them: the one place where they are declared."""

from __future__ import annotations

from dsconf.formats.accelerate.model.root import AccelerateConfig

__all__ = ["AccelerateConfig"]
