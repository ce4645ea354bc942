"""Turns the segments of connections into their packets, as columns."""
