"""Builds only the command that was asked for.

To build the options of all commands would take a fifth of the time that a node needs to start.
"""

from __future__ import annotations

from copy import copy

import typer
from typer.main import get_command_name


def only(app: typer.Typer, name: str) -> typer.Typer:
    """Return the app with only one command or group.

    If the name is unknown, return the whole app, which can list all of them.
    """
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
