"""`python -m mqproto` is the command `mqproto`.

The command lies above this package, which imports nothing from it. So this asks the installed distribution what its
console script starts, and starts that.
"""

from __future__ import annotations

from importlib.metadata import entry_points

[script] = entry_points(group="console_scripts", name="mqproto")
script.load()()
