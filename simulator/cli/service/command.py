"""`mqproto service install` and `mqproto config check`."""

from __future__ import annotations

import shutil
import sys
from contextvars import copy_context
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program import settings
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, complain
from mqproto.simulator.cli.node import node
from mqproto.simulator.cli.service.unit import CONFIG, KINDS, USER, Service, unit
from mqproto.simulator.command.edges import gateway, trigger
from mqproto.simulator.command.options import Commands
from mqproto.simulator.console.command import console

CONFIGURED: Final = {command.__name__: command for command in (node, gateway, trigger, console)}
"""The commands that take their settings from a file."""

GATEWAY: Final = (
    "a gateway is a part of its node's service: run systemctl disable --now mqproto-gateway, write gateway = "
    "'HOST:PORT' into [node] of the settings, or its options into [node.NAME.gateway] of the topology, and restart the "
    "node"
)

service = Commands(help="Run mqproto as a service, with a unit for systemd.")
config = Commands(help="Check the file that has the settings of the node, gateway, trigger and console.")


@service.callback()
@config.callback()
def _group() -> None:
    """Make typer treat these commands as a group, even if there is only one of them."""


@service.command()
def install(
    kind: Annotated[str, ARGUMENT, f"The service to run: {', '.join(KINDS)}.", value("KIND")],
    settings_file: Annotated[
        str, "The settings file, and the section in it to use.", "--config", value("FILE[#NAME]")
    ] = CONFIG,
    user: Annotated[str, "The user to run the service as.", value("USER")] = USER,
) -> int:
    """Print a hardened unit for systemd, with readiness and a watchdog.

    The command warns about files in /home, /root or /tmp, because the unit cannot see them.

    \b
    $ mqproto service install node > /etc/systemd/system/mqproto-node.service
    """
    if kind == "gateway":
        raise UsageError(GATEWAY)
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a service: type one of {', '.join(KINDS)}")
    if any(letter.isspace() or letter == "%" for letter in user) or not user:
        raise UsageError(f"--user {user!r} is not a user's name")
    program = shutil.which("mqproto") or shutil.which(sys.argv[0]) or sys.argv[0]
    chosen = settings.Chosen.of(settings_file)
    if chosen.path == Path():
        raise UsageError("--config names no file: leave it out, or name the settings of the service")
    chosen = chosen._replace(path=chosen.path.absolute())
    topology = settings.topology_of(chosen, kind)
    found = Service(kind, chosen, str(Path(program).absolute()), user, topology)
    if hidden := found.hidden():
        complain(
            f"the unit would not find {', '.join(hidden)}: it hides /home, /root and /tmp from itself; have them "
            "elsewhere, such as /opt/mqproto or /etc/mqproto, and print it again"
        )
    print(unit(found), end="")
    return DONE


@config.command()
def check(
    context: typer.Context,
    file: Annotated[Path, ARGUMENT, "The TOML file."],
) -> int:
    """Check a settings file, and print the commands for which it has settings.

    \b
    $ mqproto config check /etc/mqproto/mqproto.toml
    """
    app = Commands()
    for command in CONFIGURED.values():
        app.command()(command)
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    for found in copy_context().run(settings.check, file, commands, context):
        print(f"{file}: {found}")
    return DONE
