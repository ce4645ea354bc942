"""What a person types, and what is printed; `mqproto.simulator.cli.cli` has the list of all commands."""
