"""Finds captures, and reads their frames and TCP segments as columns."""
