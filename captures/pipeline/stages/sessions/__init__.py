"""What each packet is to its session, and what the rules say about sessions."""
