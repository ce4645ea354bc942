"""Messages of applications, their destinations, and the form in which they are stored.

These are in drafts.py, destinations.py and kept.py.
"""
