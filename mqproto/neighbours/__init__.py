"""Next hops, the sessions with them, and the attempts to reach them. Begin with neighbours.py."""
