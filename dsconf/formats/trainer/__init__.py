"""The Trainer of transformers: what it makes of a DeepSpeed config before DeepSpeed sees it."""
