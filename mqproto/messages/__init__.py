"""Messages of applications (drafts.py), their destinations (destinations.py), and their stored form (kept.py)."""
