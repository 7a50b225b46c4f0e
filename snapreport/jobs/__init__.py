"""A whole job from the snapshots of its ranks: one digest per rank, reduced to one report."""
