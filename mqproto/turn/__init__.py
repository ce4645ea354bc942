"""One turn of a queue manager: its decisions, collected until they are taken. Begin with effects.py."""
