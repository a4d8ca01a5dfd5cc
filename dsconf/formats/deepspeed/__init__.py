"""DeepSpeed's JSON configuration."""
