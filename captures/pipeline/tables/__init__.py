"""The tables: their columns, their files, and which of these count."""
