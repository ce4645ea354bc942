"""What is counted and found in the tables for a report."""
