"""Counts and findings from the tables for a report."""
