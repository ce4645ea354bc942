"""A run: its new files, its stages, and the driver's state between them."""
