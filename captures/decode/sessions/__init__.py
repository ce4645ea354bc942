"""Finds how each packet relates to its session, and whether it follows the protocol; start with `checker`."""
