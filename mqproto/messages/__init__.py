"""Messages of applications and their stored form (drafts.py), and their destinations (destinations.py)."""
