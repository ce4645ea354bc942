"""The tables: their columns, their files, and the rules about which files count."""
