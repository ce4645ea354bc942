"""Transactional sequences from end to end."""
