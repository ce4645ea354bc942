"""The tables: their columns, their files, and which files count."""
