"""The edges, where messages come in and go out exactly once."""
