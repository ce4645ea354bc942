"""`python -m mqproto` is the command `mqproto`.

The command lies above this package, which imports nothing of it. So the installed distribution is asked what its
console script starts, as that script was.
"""

from __future__ import annotations

from importlib.metadata import entry_points

[script] = entry_points(group="console_scripts", name="mqproto")
script.load()()
