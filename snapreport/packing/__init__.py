"""Typed columns to compact, text-safe blobs (design §5). Knows arrays and bytes, nothing of memory snapshots."""
