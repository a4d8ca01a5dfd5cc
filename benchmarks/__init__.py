"""Measurements, run by `./dev bench` and `./dev corpus`."""
