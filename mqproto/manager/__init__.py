"""The queue manager: queuemanager.py takes events, carry.py carries out the decisions."""
