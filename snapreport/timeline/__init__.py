"""From recorded events to lifetimes: allocations, allocated and reserved curves, peak, categories, statistics."""
