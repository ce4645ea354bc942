"""Where captures are, and their frames and TCP segments as columns."""
