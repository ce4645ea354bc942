"""Relates packets to their sessions, and applies the rules of sessions."""
