"""The one command, `mqproto`: start.py begins it, cli.py and commands.py say what there is."""
