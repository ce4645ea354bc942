"""The facts of a report, and their words."""
