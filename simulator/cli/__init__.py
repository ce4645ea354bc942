"""The one command, `mqproto`: start.py starts it, cli.py and commands.py have its subcommands."""
