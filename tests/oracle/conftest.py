"""DeepSpeed in one process."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """DeepSpeed says much, on every config."""
    logger = importlib.import_module("deepspeed.utils").logger
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def process_group() -> Iterator[None]:
    """What deepspeed.initialize needs: a group of this process alone."""
    deepspeed = importlib.import_module("deepspeed")
    distributed = importlib.import_module("torch.distributed")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1"}.items():
            patch.setenv(name, value)
        # The operator for ranks that share memory takes a minute to compile, and one rank needs it for nothing.
        patch.setattr(importlib.import_module("deepspeed.comm.torch"), "build_shm_op", lambda: None)
        # Each CPU Adam asks for the kind of processor, which takes a second.
        processor = importlib.import_module("cpuinfo")
        patch.setattr(processor, "get_cpu_info", cache(processor.get_cpu_info))
        mine = not distributed.is_initialized()
        if mine:
            distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        yield
        if mine:
            distributed.destroy_process_group()
