"""Captured traffic: files in, packets out, and back."""
