"""Captured traffic: reading files into packets, and writing them back."""
