"""The protection of a message: what the message claims, and what keys prove."""
