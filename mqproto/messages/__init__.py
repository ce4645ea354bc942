"""Messages as applications write them, where they go, and how they are kept: drafts.py, destinations.py, kept.py."""
