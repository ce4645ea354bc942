"""A node of a world: the real core, loop and store, over simulated files, with its applications."""
