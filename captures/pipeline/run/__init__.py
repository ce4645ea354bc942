"""A run: what is new, which stages it goes through, and what the driver knows in between."""
