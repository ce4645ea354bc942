"""The queue manager: queuemanager.py takes events, and carry.py carries out what it decides."""
