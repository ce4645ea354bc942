"""What each packet is to its session, and what the rules say of sessions."""
