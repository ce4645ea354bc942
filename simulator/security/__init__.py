"""The keys of nodes: kept in files (keyfiles.py), and what an operator does with them (command.py, `mqproto keys`)."""
