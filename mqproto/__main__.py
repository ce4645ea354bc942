"""`python -m mqproto` is the command `mqproto`.

The command lies above this package, which imports nothing from it. So this module asks the installed distribution
for the entry point of its console script, and starts it.
"""

from __future__ import annotations

from importlib.metadata import entry_points

[script] = entry_points(group="console_scripts", name="mqproto")
script.load()()
