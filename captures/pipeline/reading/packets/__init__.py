"""From the segments of connections to their packets, as columns."""
