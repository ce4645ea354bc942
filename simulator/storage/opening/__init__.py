"""When tables are opened: of which version they are (earlier.py), and whether all is there (complete.py)."""
