"""Turns captures of any size into tables, on Spark."""
