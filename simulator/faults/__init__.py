"""Nodes as processes, breakable links, and the check that all promises were kept."""
