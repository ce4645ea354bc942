"""The protection of a message: its own claims, and what keys prove."""
