"""Commands for the command line; `mqproto.simulator.cli.cli` lists all commands."""
