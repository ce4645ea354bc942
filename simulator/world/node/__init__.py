"""A node of a world: the real core, loop and store, on top of simulated files, with its applications."""
