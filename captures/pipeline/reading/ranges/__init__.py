"""From a range of a capture to its packets, and to what must be proved where it meets the range before."""
