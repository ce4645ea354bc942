"""Commands that people type; `mqproto.simulator.cli.cli` lists all of them."""
