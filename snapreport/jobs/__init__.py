"""A whole job from the snapshots of its ranks: a digest of each, reduced to one report."""
