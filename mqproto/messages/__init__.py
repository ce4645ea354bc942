"""Messages of applications, their destinations, and their stored form: drafts.py, destinations.py, kept.py."""
