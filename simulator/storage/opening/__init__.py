"""Checks when tables are opened: of their version (earlier.py), and of whether all is there (complete.py)."""
