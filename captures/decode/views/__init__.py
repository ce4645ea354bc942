"""Ways to show a capture: as lines, as one message's way across all hops, or as a ladder diagram."""
