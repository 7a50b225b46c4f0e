"""Queries over allocations, with the same grammar as the page: ``grammar`` parses, ``evaluate`` answers."""
