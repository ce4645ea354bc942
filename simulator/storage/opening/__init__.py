"""When the tables of a store are opened: of which version they are (earlier.py), and whether all is there (complete.py)."""
