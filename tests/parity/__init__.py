"""Trains small models with the real DeepSpeed and with emitted modules, and compares."""
