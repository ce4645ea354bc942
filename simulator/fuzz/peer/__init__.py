"""Fuzzing peers: holds whole conversations with a live peer, and judges its answers."""
