"""Next hops, the sessions with them, and the attempts to reach them. Start reading with calling.py."""
