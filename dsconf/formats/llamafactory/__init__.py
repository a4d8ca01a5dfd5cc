"""LLaMA-Factory: the config of its version 1; that of version 0 is a file of training arguments."""
