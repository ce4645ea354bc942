"""The protection of a message: its own claims, and the evidence of keys."""
