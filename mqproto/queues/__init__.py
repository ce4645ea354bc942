"""Queues whose head is in memory: lanes.py; and the ones that applications receive from: localqueue.py."""
