"""Messages as applications write them, and where they go: drafts.py, destinations.py."""
