"""The keys of nodes: their files (keyfiles.py), and the operator's commands (command.py, `mqproto keys`)."""
