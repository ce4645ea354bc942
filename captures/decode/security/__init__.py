"""What protects a message: what it says itself, and what somebody with keys can say about it."""
