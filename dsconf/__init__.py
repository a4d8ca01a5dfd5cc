"""dsconf lints DeepSpeed configs and translates them to PyTorch FSDP2 code that trains the same."""

__version__ = "0.1.0"
