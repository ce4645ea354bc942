"""Captures of any size into tables, on Spark."""
