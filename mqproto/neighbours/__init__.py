"""Next hops, the sessions with them, and attempts to reach them: begin with neighbours.py."""
