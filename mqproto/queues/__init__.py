"""Queues: lanes.py has those whose head is in memory, and localqueue.py those for applications."""
