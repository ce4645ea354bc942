"""A range of a capture into the packets that it shows, and what is to be proved where it meets the one before."""
