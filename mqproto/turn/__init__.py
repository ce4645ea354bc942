"""One turn of a queue manager: its decisions, collected until taken. Begin with effects.py."""
