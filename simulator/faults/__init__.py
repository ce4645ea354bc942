"""Nodes as processes, links that can be broken, and the proof that all promises were kept."""
