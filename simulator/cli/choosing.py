"""Of all commands the one that is asked for: to make the options of every one takes a fifth of a node's start."""

from __future__ import annotations

from copy import copy

import typer
from typer.main import get_command_name


def only(app: typer.Typer, name: str) -> typer.Typer:
    """The app with one command, or one group of them; or all of it, if none has this name, to say which there are."""
    commands = [
        info
        for info in app.registered_commands
        if name == (info.name or (info.callback and get_command_name(info.callback.__name__)))
    ]
    groups = [info for info in app.registered_groups if name == info.name]
    if not commands + groups:
        return app
    one = copy(app)
    one.registered_commands, one.registered_groups = commands, groups
    return one
