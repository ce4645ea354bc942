"""The queue manager: queuemanager.py has what it is told, carry.py what is done with its decisions."""
