"""Queries over allocations: one grammar in page and Python. ``grammar`` reads them, ``evaluate`` answers them."""
