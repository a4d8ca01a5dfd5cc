"""A Document becomes a Config: effective values with their origin, and facts derived from them."""
