"""Reads packets from captured traffic, and writes captures."""
