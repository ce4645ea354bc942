"""One turn of a queue manager: what it decides, gathered until it is taken. Begin with effects.py."""
