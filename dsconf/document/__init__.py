"""Text and its positions: scanners that keep every key and value with its span."""
