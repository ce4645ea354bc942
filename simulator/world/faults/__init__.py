"""What goes wrong in a world: with nodes and links, by operators, by peers that misbehave and by strangers."""
