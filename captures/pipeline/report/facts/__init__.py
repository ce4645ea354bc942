"""What a report knows, and the words for it."""
