"""Measures what the project promises: see ``python -m benchmarks --help``."""
