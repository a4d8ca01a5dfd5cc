"""Accelerate: what it makes of a DeepSpeed config before DeepSpeed sees it."""
