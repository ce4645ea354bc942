"""The queue manager: queuemanager.py takes events, and carry.py carries out the decisions."""
