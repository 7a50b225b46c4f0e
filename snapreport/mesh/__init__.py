"""The level-of-detail pyramid of the stacked timeline (design §4). Knows positions and bytes, no pixels and no HTML."""
