"""Snapshots in the formats of other tools: tables, profiles of stacks, traces over time, pictures."""
