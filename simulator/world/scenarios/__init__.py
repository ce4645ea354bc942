"""Worlds as data: the nodes, their messages, and the faults."""
