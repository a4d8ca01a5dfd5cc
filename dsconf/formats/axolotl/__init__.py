"""Axolotl, which trains with Trainer what a YAML file describes."""
