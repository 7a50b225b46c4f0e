"""The memory of a program over its commits: a digest of each, and what changed, when, and by which function."""
