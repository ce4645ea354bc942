"""Worlds as data: who there is, who sends what, and what goes wrong when."""
