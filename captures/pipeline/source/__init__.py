"""Where captures lie, and the frames and TCP segments in them, as columns."""
