"""Next hops, sessions with them, and whether they answer: begin with neighbours.py."""
