"""What a new user does with our units, under a systemd that is process 1; test_booted.py starts this.

python -m tests.simulator.cli.service.booted FILE

It runs as root in a container that nobody else uses, and writes its results to FILE as JSON.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Final

NODE: Final = "mqproto-node"
UNITS: Final = {
    NODE: ["node"],
    "mqproto-trigger-billing": ["trigger", "--config", "/etc/mqproto/mqproto.toml#billing"],
}
"""For each unit, the command that prints it."""
SETTINGS: Final = """\
[node]
name = "shop"
queue = ["orders:transactional", "replies"]
gateway = "127.0.0.1:8080"

[trigger.billing]
topology = "shop"
queue = "orders"
url = "http://127.0.0.1:{port}/orders"
"""
HANGS_S: Final = 3
"""How long, in seconds, a node may report nothing before systemd considers it hung; the real unit allows a minute."""
RELOADS: Final = 2
PATIENCE_S: Final = 60


def run(*command: str) -> str:
    """Return the output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def shown(unit: str, what: str) -> str:
    """Return the value of one of a unit's properties, as systemd shows it."""
    return run("systemctl", "show", unit, "--property", what, "--value").strip()


def until_shown(unit: str, what: str, value: str) -> None:
    """Wait until a property of a unit has this value."""
    end = time.monotonic() + PATIENCE_S
    while (now := shown(unit, what)) != value:
        assert time.monotonic() < end, f"{unit}: {what} is {now}"
        time.sleep(0.05)


def process_of(unit: str) -> int:
    return int(shown(unit, "MainPID"))


class Trial:
    """Everything that happens on one machine, from the arrival of a new user until the services are stopped."""

    def __init__(self) -> None:
        self.found: dict[str, object] = {}
        self.posted: Queue[str] = Queue()
        posted = self.posted

        class Service(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted.put(self.rfile.read(int(self.headers["content-length"])).decode())
                self.send_response(200)
                self.end_headers()

        server = HTTPServer(("127.0.0.1", 0), Service)
        Thread(target=server.serve_forever, daemon=True).start()
        self.port = server.server_port
        self.operators: list[str] = []

    def run(self) -> None:
        """Run everything, in this order.

        Other tests kill nodes by hand; here, systemd kills a node that hangs.
        """
        self.install()
        run("systemctl", "start", *UNITS)
        came = [self.came_through("first")]
        self.found["operator sees"] = run(*self.operators, "queues")
        self.found["walls"] = self.walls()
        self.found["reloads"] = self.reloads()
        came += [self.came_through("reloaded")]
        self.found["hung"] = self.hung()
        self.found["came through"] = [*came, self.came_through("last")]
        for unit in reversed(UNITS):  # As when the machine goes down: a node after those who need it.
            run("systemctl", "stop", unit)
        self.found["stopped"] = {
            unit: [shown(unit, "Result"), shown(unit, "ExecMainStatus")] for unit in UNITS
        }

    def install(self) -> None:
        """Install the units as their first lines tell the user to do."""
        settings = Path("/etc/mqproto/mqproto.toml")
        settings.parent.mkdir()
        Path("/home/letter").write_text("for nobody else")
        settings.write_text(SETTINGS.format(port=self.port))
        for unit, arguments in UNITS.items():
            text = run("mqproto", "service", "install", *arguments)
            [path] = re.findall(r"^# (/etc/systemd/system/\S+)$", text, re.MULTILINE)
            assert path == f"/etc/systemd/system/{unit}.service"
            Path(path).write_text(text)
            [made] = re.findall(r"^#   (useradd .*)$", text, re.MULTILINE)
            [operates] = re.findall(r"^#   sudo -u (\S+ env .*) queues$", text, re.MULTILINE)
            if unit == NODE:
                # The machine whose files these are may have that user.
                subprocess.run(["userdel", "mqproto"], capture_output=True, check=False)
                run(*shlex.split(made))
                # sudo is not on every machine.
                user, *command = shlex.split(operates)
                self.operators = ["runuser", "-u", user, "--", *command]
        hurried = Path(f"/etc/systemd/system/{NODE}.service.d")
        hurried.mkdir()
        (hurried / "hurried.conf").write_text(f"[Service]\nWatchdogSec={HANGS_S}\n")
        run("mqproto", "config", "check", str(settings))
        run("systemctl", "daemon-reload")

    def came_through(self, body: str) -> bool:
        """Return whether a producer's request finally arrives as a call to the service."""
        url = "http://127.0.0.1:8080/queues/orders/messages"
        with urllib.request.urlopen(url, body.encode(), timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        return self.posted.get(timeout=PATIENCE_S) == body

    def walls(self) -> dict[str, bool]:
        """Return which actions root can take in the mount namespace of the node's process.

        Only the unit's sandboxing can stop root there.
        """
        inside = ["nsenter", "--target", str(process_of(NODE)), "--mount", "sh", "-c"]

        def can(what: str) -> bool:
            return subprocess.run([*inside, what], capture_output=True, check=False).returncode == 0

        return {
            "write its settings": can("touch /etc/mqproto/mqproto.toml"),
            "write programs": can("touch /usr/bin/there"),
            "see homes": can("test -e /home/letter"),
            "write its store": can("touch /var/lib/mqproto/there"),
        }

    def reloads(self) -> dict[str, list[object]]:
        """Return, for each unit, the states seen, whether the process is still the same, and how often it was
        restarted.
        """
        before = {unit: process_of(unit) for unit in UNITS}
        states: dict[str, set[str]] = {unit: set() for unit in UNITS}
        for _ in range(RELOADS):
            run("systemctl", "reload", *UNITS)
            for unit in UNITS:
                states[unit] |= {shown(unit, "SubState")}
        for unit in UNITS:
            if "stop-sigterm" not in states[unit]:
                until_shown(unit, "SubState", "running")
        return {
            unit: [sorted(states[unit]), process_of(unit) == before[unit], shown(unit, "NRestarts")]
            for unit in UNITS
        }

    def hung(self) -> list[str]:
        """Return how, according to systemd's log, a hung node ended, and the state of the node after that."""
        os.kill(process_of(NODE), signal.SIGSTOP)
        until_shown(NODE, "NRestarts", "1")
        until_shown(NODE, "ActiveState", "active")
        said = run("journalctl", "--unit", NODE, "--output", "cat", "--lines", "100")
        return [*re.findall(r"Failed with result '(\S+)'", said), shown(NODE, "ActiveState")]


def main(file: Path) -> None:
    """Run the trial, and write its results."""
    trial = Trial()
    try:
        trial.run()
    except Exception:
        trial.found["failed"] = traceback.format_exc()
        trial.found["journal"] = run("journalctl", "--output", "cat", "--lines", "100")
    file.write_text(json.dumps(trial.found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
