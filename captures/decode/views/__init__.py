"""Ways to show a capture: as lines, as one message's path across all hops, or as a ladder diagram."""
