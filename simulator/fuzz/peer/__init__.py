"""Fuzzing peers: whole conversations with somebody who listens, and what is owed on each."""
