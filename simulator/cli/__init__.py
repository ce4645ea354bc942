"""The single command `mqproto`: start.py starts it, and cli.py and commands.py have its subcommands."""
