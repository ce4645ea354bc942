"""The text of a systemd unit that has only the permissions that its program needs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.simulator.base.program.settings import Chosen

CONFIG: Final = "/etc/mqproto/mqproto.toml"
USER: Final = "mqproto"
DIRECTORY: Final = "mqproto"
"""The name of the service's folders in /var/lib and /run."""


class Kind(NamedTuple):
    """A command that runs as a service.

    what: a description of the program.
    ready_in: the time that it may take to become ready.
    after: the units to start before it.
    """

    what: str
    ready_in: str
    after: str


NETWORK: Final = "network-online.target"
KINDS: Final = {
    "node": Kind("queue manager", "15min", NETWORK),
    "trigger": Kind("trigger", "infinity", f"{NETWORK} mqproto-node.service"),
}
"""The services, keyed by the name of their command.

A node reads its store before it is ready; a gateway is a part of its node. A trigger waits for its node and, if it
stands by for another trigger, for its turn.
"""

HARDENED: Final = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateDevices=yes
PrivateTmp=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
"""
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Folders that look empty to a unit with ProtectHome and PrivateTmp. See man 5 systemd.exec."""


class Service(NamedTuple):
    """The program to run as a service.

    kind: one of KINDS.
    config: the settings of the program.
    program: the path of mqproto.
    topology: the topology that the settings name; empty if they name none.
    """

    kind: str
    config: Chosen
    program: str
    user: str = USER
    topology: str = ""

    @property
    def name(self) -> str:
        """Return the name of the unit."""
        return "-".join(filter(None, ("mqproto", self.kind, self.config.name)))

    def hidden(self) -> list[str]:
        """The files of the program that the unit could not see. Symbolic links are followed."""
        files = {self.program, os.path.realpath(sys.executable), str(self.config.path)}
        return sorted(
            file for file in files if any(Path(os.path.realpath(file)).is_relative_to(one) for one in HIDDEN)
        )


def unit(service: Service) -> str:
    """Return the text of the unit. Its comments say what to prepare."""
    kind, name, config = KINDS[service.kind], service.name, service.config
    start = " ".join(_escaped(part) for part in (service.program, service.kind, "--config", str(config)))
    places = {"XDG_RUNTIME_DIR": f"/run/{DIRECTORY}", "MQPROTO_DIRECTORY": f"/var/lib/{DIRECTORY}"}
    if service.topology:
        places["MQPROTO_TOPOLOGY"] = service.topology
    operates = shlex.join(["env", *(f"{name}={value}" for name, value in places.items()), service.program])
    return f"""\
# /etc/systemd/system/{name}.service
#
#   useradd --system --home-dir /var/lib/{DIRECTORY} --shell /usr/sbin/nologin {service.user}
#   mqproto config check {shlex.quote(str(config.path))}
#   systemctl daemon-reload && systemctl enable --now {name}
#
# Who operates it types, for instance:
#   sudo -u {service.user} {operates} queues

[Unit]
Description=mqproto: {kind.what}{" " * bool(config.name)}{config.name}
After={kind.after}
Wants={NETWORK}

[Service]
Type=notify
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
WatchdogSec=60
TimeoutStartSec={kind.ready_in}
TimeoutStopSec=90
User={service.user}
Environment=MQPROTO_DIRECTORY=%S/{DIRECTORY} XDG_RUNTIME_DIR=%t/{DIRECTORY}
StateDirectory={DIRECTORY}
StateDirectoryMode=0700
RuntimeDirectory={DIRECTORY}
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
{HARDENED}
[Install]
WantedBy=multi-user.target
"""


def _escaped(part: str) -> str:
    """Return a word of a command line, escaped for systemd. See man 5 systemd.service, COMMAND LINES."""
    part = part.replace("%", "%%").replace("$", "$$")
    if not part or any(letter in part for letter in " \t'\"\\;"):
        part = '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return part
