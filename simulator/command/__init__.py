"""What a person types, and what is printed; `simulator.cli.cli` has the list of all commands."""
