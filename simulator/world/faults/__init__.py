"""Faults of a world: those of nodes and links, and those caused by operators, misbehaving peers and strangers."""
