"""The outcome of each message."""
