"""dsconf against the real DeepSpeed."""
