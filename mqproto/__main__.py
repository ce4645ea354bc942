"""`python -m mqproto` runs the command `mqproto`.

The command is in a higher layer, from which this package imports nothing. So this module asks the installed
distribution for the entry point of its console script, and calls it.
"""

from __future__ import annotations

from importlib.metadata import entry_points

[script] = entry_points(group="console_scripts", name="mqproto")
script.load()()
