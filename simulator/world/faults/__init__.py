"""Faults of a world: in nodes and links, by operators, by misbehaving peers and by strangers."""
