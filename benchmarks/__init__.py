"""Measures what the project claims: see ``python -m benchmarks --help``."""
