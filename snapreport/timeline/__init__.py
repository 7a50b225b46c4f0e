"""Turns recorded events into lifetimes: allocations, allocated and reserved curves, peak, categories, statistics."""
