"""What became of each message."""
