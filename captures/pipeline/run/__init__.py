"""A run: its new files, its stages, and what the driver knows between them."""
