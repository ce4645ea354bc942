"""Records the events of a world, and checks the invariants of every world."""
